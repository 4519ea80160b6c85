"""A small trained network, and the driver of ``make demo``: ``python -m byoc_accel.demo``.

data.py      the images and their split
network.py   the network as a list of layers, and its NumPy forward pass
train.py     trains it (NumPy only) and writes mnist_cnn.json; run once, the result is committed
export.py    writes mnist_cnn.onnx
driver.py    compiles it, runs it on the simulator, and says what came out
"""
