#!/bin/sh
# The turn protocol, checked exhaustively, and its mutants. Skipped where there is no spin.
# timeout: 900
exec "$REPO/tests/model/run"
