"""T8: an epoch of examples/22_train_digits.rnl beside the same training in PyTorch on the CPU, in turn.

    benches/peer_torch_digits.py target/release/runnel [--rounds N]

Runnel's epoch is the difference between runs of 42 and 14 epochs, so that neither side's start counts.
"""

import argparse
import statistics
import subprocess
import time

import numpy as np
import torch
from torch import nn

options = argparse.ArgumentParser()
options.add_argument("runnel")
options.add_argument("--rounds", type=int, default=3)
options.add_argument("--device", default="cpu")
options.add_argument("--threads", type=int, default=2, help="of PyTorch")
args = options.parse_args()
torch.set_num_threads(args.threads)

digits = np.load("examples/digits.npz")
images = torch.from_numpy(digits["images"]).float().flatten(1) / 16
labels = torch.from_numpy(digits["labels"]).long()


def pytorch(epochs):
    torch.manual_seed(0)
    order = torch.randperm(len(labels))
    cut = round(0.8 * len(labels))
    train = torch.utils.data.TensorDataset(images[order[:cut]], labels[order[:cut]])
    test = torch.utils.data.TensorDataset(images[order[cut:]], labels[order[cut:]])
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    steps = (len(train) + 63) // 64
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, epochs * steps)

    def accuracy():
        net.eval()
        with torch.no_grad():
            right = 0
            for x, y in torch.utils.data.DataLoader(test, batch_size=256):
                right += (net(x).argmax(1) == y).sum().item()
        net.train()
        return right / len(test)

    for epoch in range(epochs):
        total = torch.zeros([])
        for x, y in torch.utils.data.DataLoader(train, batch_size=64, shuffle=True):
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
        total.item()
        reached = accuracy()
    assert epochs == 1 or reached >= 0.96


def runnel(epochs):
    place = [] if args.device == "cuda" else ["--device", args.device]
    command = [args.runnel, "--backend", "emu", "examples/22_train_digits.rnl", "--epochs", str(epochs)]
    subprocess.run(command + place, check=True, capture_output=True)


def epoch(train):
    begin = time.perf_counter()
    train(14)
    middle = time.perf_counter()
    train(42)
    return (time.perf_counter() - middle - (middle - begin)) / 28 * 1000


pytorch(1)
pairs = [(epoch(runnel), epoch(pytorch)) for _ in range(args.rounds)]
ours, theirs = (statistics.median(side) for side in zip(*pairs))
ratio = statistics.median(a / b for a, b in pairs)
print(f"| T8 train digits, an epoch, {args.device} | {ours:.0f} ms | {theirs:.0f} ms | {ratio:.2f} |")
