# Wrote numpy.npz and numpy_stored.npz with NumPy 2.4.6: python make_numpy.py
import numpy as np

arrays = {
    "i1": np.array([-128, 127], dtype="i1"),
    "i2": np.array([-32768, 32767], dtype="<i2"),
    "i4": np.array([[-(2**31), 2**31 - 1, 7]], dtype="<i4"),
    "i8": np.arange(24, dtype="<i8").reshape(2, 3, 4) + np.iinfo("i8").min,
    "i8_big": np.array([-(2**63), 2**63 - 1], dtype=">i8"),
    "u1": np.array([0, 255], dtype="u1"),
    "u2_big": np.array([0, 65535], dtype=">u2"),
    "u4": np.array([2**32 - 1], dtype="<u4"),
    "u8": np.array([[0, 2**63 - 1]], dtype="<u8"),
    "u8_huge": np.array([[0, 1], [2, 2**63]], dtype="<u8"),
    "f4": np.array([1.5, -0.25], dtype="<f4"),
    "f8": np.array([0.1, np.inf], dtype="<f8"),
    "f8_big": np.array([0.1], dtype=">f8"),
    "f2": np.array([1.0], dtype="<f2"),
    "flags": np.array([True, False, True]),
    "text": np.array(["", "rank 9", "früh \U0001f600"]),
    "text_big": np.array(["ab"], dtype=">U4"),
    "scalar": np.int64(8),
    "scalar_text": np.array("incident"),
    "empty": np.zeros((0, 5), dtype="<i8"),
    "fortran": np.asfortranarray(np.arange(6, dtype="<i8").reshape(2, 3)),
    "fortran_column": np.asfortranarray(np.arange(3, dtype="<i8").reshape(3, 1)),
    "complex": np.array([1j]),
    "structured": np.array([(1, 2.0)], dtype=[("a", "<i8"), ("b", "<f8")]),
}
np.savez_compressed("numpy.npz", **arrays)
np.savez("numpy_stored.npz", i8=arrays["i8"], text=arrays["text"])
