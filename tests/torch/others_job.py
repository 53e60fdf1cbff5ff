"""One of two workers that train with gloo, in the words of a library for it, and write down what they found.

others_job.py <directory> plain|accelerate|lightning
"""

import json
import os
import pathlib
import sys

import torch
import torch.distributed as dist


def plain():
    """As PyTorch has it."""
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    # A receiver must not find that the sender is gone.
    dist.barrier()
    dist.destroy_process_group()
    return total.item()


def accelerate():
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True)
    total = accelerator.reduce(torch.ones(1)).item()
    accelerator.wait_for_everyone()
    accelerator.end_training()
    return total


def lightning():
    """A model of one weight, whose gradient is the mean of everybody's."""
    import lightning

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))
            self.total = None

        def training_step(self, batch, _):
            self.total = self.trainer.strategy.reduce(torch.ones(1), reduce_op="sum").item()
            return (self.weight * batch).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1.0)

    model = Model()
    trainer = lightning.Trainer(
        accelerator="cpu", strategy="ddp", devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        num_nodes=int(os.environ["GROUP_WORLD_SIZE"]), max_steps=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, torch.utils.data.DataLoader(torch.ones(4, 1), batch_size=1))
    assert model.weight.item() == -1.0, model.weight
    return model.total


directory, library = sys.argv[1:]
rank = os.environ["RANK"]
found = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "PET_NODE_RANK", "TORCHELASTIC_USE_AGENT_STORE")}
found["total"] = {"plain": plain, "accelerate": accelerate, "lightning": lightning}[library]()
pathlib.Path(directory, f"rank{rank}.json").write_text(json.dumps(found))
