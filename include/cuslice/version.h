/* The one place that says which cuslice this is. */
#ifndef CUSLICE_VERSION_H
#define CUSLICE_VERSION_H

#define CUSLICE_VERSION "0.1.0"

#endif
