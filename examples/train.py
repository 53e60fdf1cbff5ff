"""Elastic training, to copy from: any rank may die at any step, and the job goes on from its last checkpoint.

    rallypoint run --standalone --nproc-per-node 2 --max-restarts 3 examples/train.py
    torchrun --standalone --nproc-per-node 2 examples/train.py

The model and its data are made up, so that it runs anywhere, on processors alone. What to copy is the rest:

- the state is the checkpoint, and a step is counted when it is done: every start is a resumption;
- the batches of a step depend on the seed and the step, and on nothing that a restart forgets;
- a checkpoint is whole or not there: written beside its place, then renamed;
- SIGUSR1 (`rallypoint run --notice 30`: "you will be stopped soon") asks for a checkpoint, SIGTERM for one and the end;
- whatever fails is told to the launcher by `@record`, for its report.

With the same number of ranks the weights at the end are the same to the last bit, interrupted or not.
"""

import argparse
import hashlib
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Sampler, TensorDataset

SEED = 20240229
FEATURES = 16


def arguments():
    parser = argparse.ArgumentParser(description="Trains a small model, elastically, on CPUs.")
    parser.add_argument("--epochs", type=int, default=4, help="(default 4)")
    parser.add_argument("--steps", type=int, default=50, help="steps of an epoch (default 50)")
    parser.add_argument("--batch", type=int, default=64, help="samples of a step, over all ranks (default 64)")
    where = "where all ranks can read it, and from where they go on (default checkpoint.pt)"
    parser.add_argument("--checkpoint", default="checkpoint.pt", metavar="FILE", help=where)
    parser.add_argument("--checkpoint-every", type=int, default=10, metavar="STEPS", help="(default 10)")
    parser.add_argument("--step-seconds", type=float, default=0, metavar="S", help="slow it down, to be watched")
    parser.add_argument("--weights-hash", metavar="FILE", help="write the hash of the final weights there as well")
    parser.add_argument("--fail-at-step", type=int, metavar="N", help="fail there, unless this is a restart already")
    parser.add_argument("--fail-rank", type=int, default=0, metavar="R", help="the rank that does (default 0)")
    return parser.parse_args()


class Batches(Sampler):
    """This rank's part of the batches from a step on, until the end of the training. Each epoch has its own order,
    which all ranks draw from the same seed; the ranks deal a batch out among themselves. So the batches of the whole
    job are the same for any number of ranks, and from any step on."""

    def __init__(self, options, first_step):
        self.options, self.first_step = options, first_step

    def __len__(self):
        return self.options.epochs * self.options.steps - self.first_step

    def __iter__(self):
        first_epoch, done = divmod(self.first_step, self.options.steps)
        for epoch in range(first_epoch, self.options.epochs):
            generator = torch.Generator().manual_seed(SEED + epoch)
            order = torch.randperm(self.options.steps * self.options.batch, generator=generator)
            for batch in order.split(self.options.batch)[done:]:
                yield batch[dist.get_rank() :: dist.get_world_size()].tolist()
            done = 0


class Training:
    """What is trained: all that a checkpoint has to hold."""

    def __init__(self, options):
        self.options = options
        torch.manual_seed(SEED)
        self.data = synthetic_data(options.steps * options.batch)
        self.network = nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, 1))
        self.model = DistributedDataParallel(self.network)
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=1e-2)
        self.step = 0

    def gradients(self, inputs, targets):
        """Sets them, over all ranks, and returns this rank's share of the loss. DDP takes the mean over the ranks;
        by this scale that is the mean over the samples, even if some ranks have one sample more."""
        self.optimizer.zero_grad()
        errors = nn.functional.mse_loss(self.model(inputs), targets, reduction="sum")
        loss = errors * dist.get_world_size() / self.options.batch
        loss.backward()
        return loss.item()

    def load(self):
        if os.path.exists(self.options.checkpoint):
            state = torch.load(self.options.checkpoint, weights_only=True)
            self.network.load_state_dict(state["network"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = state["step"]

    def save(self):
        """Rank 0 does it, for all have the same. Who reads meanwhile sees the checkpoint before."""
        if dist.get_rank() != 0:
            return
        state = {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}
        unfinished = self.options.checkpoint + ".unfinished"
        with open(unfinished, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, self.options.checkpoint)

    def weights_hash(self):
        digest = hashlib.sha256()
        for weights in self.network.state_dict().values():
            digest.update(bytes(weights.untyped_storage()))
        return digest.hexdigest()


def synthetic_data(samples):
    inputs = torch.randn(samples, FEATURES)
    targets = torch.tanh(inputs @ torch.randn(FEATURES, 1)) + 0.1 * torch.randn(samples, 1)
    return TensorDataset(inputs, targets)


def say(text):
    if dist.get_rank() == 0:
        print(text, flush=True)


def train(training, asked):
    """Up to the end, or until SIGTERM. `asked` has the signals that have come."""
    options = training.options
    for inputs, targets in DataLoader(training.data, batch_sampler=Batches(options, training.step)):
        fail_if_told_to(options, training.step)
        try:
            loss = training.gradients(inputs, targets)
        except RuntimeError:
            # Another rank is gone. The weights are still those of the step before, and worth keeping.
            if signal.SIGTERM in asked:
                return
            training.save()
            raise
        training.optimizer.step()
        training.step += 1
        time.sleep(options.step_seconds)
        if training.step % options.checkpoint_every == 0 or signal.SIGUSR1 in asked:
            asked.discard(signal.SIGUSR1)
            training.save()
            say(f"step {training.step}: loss {loss:.4f}, saved")
        if signal.SIGTERM in asked:
            return


def fail_if_told_to(options, step):
    first_life = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    if first_life and (step, dist.get_rank()) == (options.fail_at_step, options.fail_rank):
        raise RuntimeError(f"rank {options.fail_rank} was told to fail at step {step}")


@record
def main():
    options = arguments()
    asked = set()
    for number in (signal.SIGUSR1, signal.SIGTERM):
        # Only noted: in the middle of a step there is nothing whole to save.
        signal.signal(number, lambda number, _frame: asked.add(number))
    dist.init_process_group("gloo")
    training = Training(options)
    # DDP rearranges what it sums after its first pass, and the order of a sum shows in its last bit. After a pass
    # for nothing, an interrupted training is like one that was not.
    training.gradients(*training.data[: options.batch])
    training.load()
    say(f"{dist.get_world_size()} ranks, from step {training.step} of {options.epochs * options.steps}")
    train(training, asked)
    training.save()
    if signal.SIGTERM in asked:
        say(f"stopped at step {training.step}, saved")
        sys.exit(128 + signal.SIGTERM)
    say(f"done, weights {training.weights_hash()}")
    if options.weights_hash and dist.get_rank() == 0:
        with open(options.weights_hash, "w") as file:
            file.write(training.weights_hash())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
