"""Pictures of the simplest format there is: https://netpbm.sourceforge.net/doc/ppm.html"""

import re

HEADER = re.compile(rb"P6\s+(\d{1,5})\s+(\d{1,5})\s+255\s")


def shrink(picture: bytes, width: int) -> bytes:
    """The picture at this width, each pixel taken from the one that lies there.

    :raises ValueError: it is none, or not all of it.
    """
    header = HEADER.match(picture)
    if header is None:
        raise ValueError("this is not a binary PPM picture of 8 bits")
    columns, rows = int(header[1]), int(header[2])
    pixels = memoryview(picture)[header.end() :]
    if not columns or not rows or len(pixels) != 3 * columns * rows:
        raise ValueError(f"a picture of {columns} × {rows} has {3 * columns * rows} bytes; this has {len(pixels)}")
    width = min(width, columns)
    height = max(1, rows * width // columns)
    small = bytearray(f"P6 {width} {height} 255\n".encode())
    for y in range(height):
        line = y * rows // height * columns
        for x in range(width):
            start = 3 * (line + x * columns // width)
            small += pixels[start : start + 3]
    return bytes(small)
