#!/bin/bash
# GPT (2).json: 2 hosts with 8 ranks each.
# Start it on the first of the hosts.
set -eu
: "${TRIVET_SECRET_FILE:?must name a file of 32 random bytes, mode 600, the same on all hosts}"
export MASTER_ADDR=${MASTER_ADDR:-$(hostname)} MASTER_PORT=${MASTER_PORT:-29500}
exec mpirun -n 16 --map-by ppr:8:node --bind-to none -x MASTER_ADDR -x MASTER_PORT -x TRIVET_SECRET_FILE trivet train 'GPT (2).json' --resume
