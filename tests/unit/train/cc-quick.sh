#!/bin/sh
# A C compiler for images of tests that compile many: little optimisation.
exec gcc "$@" -O1
