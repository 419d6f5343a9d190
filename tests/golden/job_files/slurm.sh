#!/bin/bash
# GPT (2).json: 2 hosts with 8 ranks each.
# Start it with sbatch, from a directory that all nodes share.
# Slurm gives each rank one core unless you say how many: sbatch --cpus-per-task=N, the cores of a node divided by its ranks.
#SBATCH --job-name=gpt-2
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --time=90
#SBATCH --signal=TERM@61
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
set -eu
# Ranks of other users' jobs cannot join without this file.
export TRIVET_SECRET_FILE=$PWD/.trivet-secret-$SLURM_JOB_ID
trap 'rm -f "$TRIVET_SECRET_FILE"' EXIT
rm -f "$TRIVET_SECRET_FILE"
(umask 077 && head -c 32 /dev/urandom > "$TRIVET_SECRET_FILE")
# srun does not take this number from sbatch.
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
srun --kill-on-bad-exit=1 trivet train 'GPT (2).json' --resume
