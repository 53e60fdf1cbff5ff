#!/bin/bash
# A job of four nodes with eight GPUs each. `sbatch examples/slurm/train.sh`, in the directory of train.py.
#SBATCH --job-name=train
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
#SBATCH --time=24:00:00

srun --ntasks-per-node 1 rallypoint run --nproc-per-node gpu --max-restarts 3 train.py --epochs 10
