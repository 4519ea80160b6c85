"""Windows, convolution and pooling in NumPy, shared by `region.interpret` and `quantize.interpret`.

Arrays are NHWC; padding is (top, left, bottom, right). The batch axis may have any length, so that a
caller can stack samples.
"""
from __future__ import annotations

import numpy as np

PATCH_BYTES = 32 << 20  # upper limit of one gathered patch matrix


def positions(size: int, kernel: int, stride: int, before: int, after: int, dilation: int = 1) -> int:
    """Number of windows along one axis; 0 or less when the kernel does not fit the padded input."""
    extent = (kernel - 1) * dilation + 1
    return (size + before + after - extent) // stride + 1


def window_shape(x_shape: tuple[int, ...], kernel: tuple[int, int], stride: tuple[int, int],
                 padding: tuple[int, int, int, int], dilation: tuple[int, int] = (1, 1)) -> tuple[int, int]:
    """(height, width) of a convolution's or pooling's result; 0 or less where it does not fit."""
    top, left, bottom, right = padding
    return (positions(x_shape[1], kernel[0], stride[0], top, bottom, dilation[0]),
            positions(x_shape[2], kernel[1], stride[1], left, right, dilation[1]))


def pad(x: np.ndarray, padding: tuple[int, int, int, int], value: float) -> np.ndarray:
    """x with `padding` rows and columns of `value` around it."""
    top, left, bottom, right = padding
    if not any(padding):
        return x
    return np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=value)


def windows(x: np.ndarray, kernel: tuple[int, int], stride: tuple[int, int],
            dilation: tuple[int, int] = (1, 1)) -> np.ndarray:
    """View of x, shape (N, OH, OW, KH, KW, C): the values under every window. x is padded already."""
    extent = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation))
    view = np.lib.stride_tricks.sliding_window_view(x, extent, axis=(1, 2))
    view = view[:, ::stride[0], ::stride[1], :, ::dilation[0], ::dilation[1]]
    return view.transpose(0, 1, 2, 4, 5, 3)


def convolve(x: np.ndarray, weight: np.ndarray, stride: tuple[int, int], padding: tuple[int, int, int, int],
             dilation: tuple[int, int], groups: int) -> np.ndarray:
    """Grouped convolution of float x (N, H, W, C) with weight (O, KH, KW, C / groups), padded with 0.

    The result has x's dtype. With float64 it is exact for integers while every partial sum is below 2**53.
    """
    weight = weight.astype(x.dtype, copy=False)
    o, kh, kw, i = weight.shape
    view = windows(pad(x, padding, 0), (kh, kw), stride, dilation)
    if i == 1 and groups > 1:
        return _convolve_depthwise(view, weight, groups)
    out = np.empty(view.shape[:3] + (o,), x.dtype)
    per_group = o // groups
    step = max(1, PATCH_BYTES // max(1, x.itemsize * kh * kw * i * view.shape[1] * view.shape[2]))
    for g in range(groups):
        matrix = weight[g * per_group:(g + 1) * per_group].reshape(per_group, -1).T
        for n in range(0, len(x), step):
            patches = view[n:n + step, ..., g * i:(g + 1) * i].reshape(-1, kh * kw * i)
            if groups == 1:
                np.matmul(patches, matrix, out=out[n:n + step].reshape(-1, o))
            else:
                part = out[n:n + step, ..., g * per_group:(g + 1) * per_group]
                part[...] = (patches @ matrix).reshape(part.shape)
    return out


def _convolve_depthwise(view: np.ndarray, weight: np.ndarray, groups: int) -> np.ndarray:
    """view (N, OH, OW, KH, KW, C), weight (O, KH, KW, 1): output channel c * multiplier + m reads c."""
    o, kh, kw, _ = weight.shape
    acc = np.zeros(view.shape[:3] + (groups, o // groups), view.dtype)
    for ky in range(kh):
        for kx in range(kw):
            acc += view[:, :, :, ky, kx, :, None] * weight[:, ky, kx, 0].reshape(groups, -1)
    return acc.reshape(view.shape[:3] + (o,))


def transposed_size(size: int, kernel: int, stride: int, before: int) -> int:
    """Positions of a transposed convolution along one axis that any input reaches; `before` are cut off in front."""
    return (size - 1) * stride + kernel - before


def convolve_transposed(x: np.ndarray, weight: np.ndarray, stride: tuple[int, int], padding: tuple[int, int],
                        shape: tuple[int, int]) -> np.ndarray:
    """Transposed convolution of float x (N, H, W, I) with weight (O, KH, KW, I); the result has `shape` (OH, OW).

    Result position o is the sum of x[i] * weight[k] over i * stride + k - padding = o. Exact as `convolve` is.
    """
    weight = weight.astype(x.dtype, copy=False)
    o, kh, kw, _ = weight.shape
    sizes = [max((n - 1) * s + k, before + out)
             for n, s, k, before, out in zip(x.shape[1:3], stride, (kh, kw), padding, shape)]
    full = np.zeros((len(x), *sizes, o), x.dtype)
    for ky in range(kh):
        for kx in range(kw):
            full[:, ky:ky + (x.shape[1] - 1) * stride[0] + 1:stride[0],
                 kx:kx + (x.shape[2] - 1) * stride[1] + 1:stride[1]] += x @ weight[:, ky, kx].T
    return full[:, padding[0]:padding[0] + shape[0], padding[1]:padding[1] + shape[1]]


def pool_max(x: np.ndarray, kernel: tuple[int, int], stride: tuple[int, int],
             padding: tuple[int, int, int, int], lowest: float) -> np.ndarray:
    """Maximum of every window; padding holds `lowest`, the identity of max."""
    view = windows(pad(x, padding, lowest), kernel, stride)
    out = view[:, :, :, 0, 0].copy()
    for ky in range(kernel[0]):
        for kx in range(kernel[1]):
            np.maximum(out, view[:, :, :, ky, kx], out=out)
    return out


def pool_sum(x: np.ndarray, kernel: tuple[int, int], stride: tuple[int, int],
             padding: tuple[int, int, int, int]) -> np.ndarray:
    """Sum of every window in x's dtype; padding counts as 0."""
    view = windows(pad(x, padding, 0), kernel, stride)
    out = np.zeros(view.shape[:3] + view.shape[5:], x.dtype)
    for ky in range(kernel[0]):
        for kx in range(kernel[1]):
            out += view[:, :, :, ky, kx]
    return out


def pool_counts(height: int, width: int, kernel: tuple[int, int], stride: tuple[int, int],
                padding: tuple[int, int, int, int], count_include_pad: bool) -> np.ndarray:
    """int64 (OH, OW): the positions that divide each window's sum, those inside the input or all of them."""
    ones = np.ones((1, height, width, 1), np.int64)
    if count_include_pad:
        top, left, bottom, right = padding
        ones = np.ones((1, height + top + bottom, width + left + right, 1), np.int64)
        padding = (0, 0, 0, 0)
    return pool_sum(ones, kernel, stride, padding)[0, :, :, 0]
