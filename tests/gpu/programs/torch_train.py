"""Trains a small network with PyTorch, then captures and replays a step as a CUDA graph.

Exits 77 where PyTorch or its device is missing. With a number as its argument it checks besides
that the device's memory is told as that many bytes.
"""
import sys

try:
    import torch
except ImportError:
    print("skipped: PyTorch is not installed")
    sys.exit(77)
if not torch.cuda.is_available():
    print("skipped: PyTorch sees no device")
    sys.exit(77)

torch.manual_seed(1)
device = torch.device("cuda")
layers = torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)
net = torch.nn.Sequential(*layers).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
inputs = torch.randn(4096, 64, device=device)
targets = inputs.sum(dim=1, keepdim=True) / 8


def step():
    optimizer.zero_grad(set_to_none=False)
    loss = torch.nn.functional.mse_loss(net(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss


first = step().item()
for _ in range(100):
    last = step()
assert last.item() < first / 2, "no progress: loss %f, then %f" % (first, last.item())

side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    captured = step()
graph.replay()
before = captured.item()
for _ in range(200):
    graph.replay()
torch.cuda.synchronize()
assert captured.item() < before or before == 0, "the graph trains nothing"

if len(sys.argv) > 1:
    free, total = torch.cuda.mem_get_info()
    assert total == int(sys.argv[1]) and free <= total, "memory is told as %d of %d" % (free, total)
print("ok: PyTorch %s, loss %.4f to %.6f, 200 replays of a captured step"
      % (torch.__version__, first, captured.item()))
