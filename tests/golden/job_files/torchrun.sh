#!/bin/bash
# GPT (2).json: 2 hosts with 8 ranks each.
# Start it on each of the hosts, with FIRST_HOST=name of one of them.
set -eu
: "${FIRST_HOST:?must be the name of one of the hosts, the same on all}"
: "${TRIVET_SECRET_FILE:?must name a file of 32 random bytes, mode 600, the same on all hosts}"
exec torchrun --no-python --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint="$FIRST_HOST:29400" --rdzv-id=gpt-2 --nproc-per-node=8 trivet train 'GPT (2).json' --resume
