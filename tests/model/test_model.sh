#!/bin/sh
# The turn protocol, checked exhaustively, and its mutants. Skipped where there is no spin.
# timeout: 500
exec "$REPO/tests/model/run"
