#!/bin/bash
# A job that needs more than one turn: before its time is over, the workers save their work, and the job is queued again.
# `sbatch examples/slurm/requeue.sh`, in the directory of train.py, which goes on from its last checkpoint.
#SBATCH --job-name=train
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
# Three minutes before the end, this script gets SIGUSR1.
#SBATCH --signal=B:USR1@180

notice() {
    # Every worker gets SIGUSR1: it saves, and goes on.
    scancel --signal=USR1 "$SLURM_JOB_ID"
    sleep "${NOTICE:-90}"
    # Then SIGTERM, if the job is not done by now. After the KillWait of Slurm, 30 s by default, it is killed.
    kill -0 "$step" 2>/dev/null && scontrol requeue "$SLURM_JOB_ID"
}

srun --ntasks-per-node 1 rallypoint run --nproc-per-node gpu --max-restarts 3 --shutdown-timeout 25 train.py --epochs 10 &
step=$!
trap notice USR1
wait "$step"
# The signal ends the first wait, not the step.
wait "$step"
