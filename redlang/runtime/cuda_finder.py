"""What a process finds on disk of an earlier one's calls on a GPU, before it loads any compiler."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from redlang.runtime.cache import digest, disk, keep, unpickled, versions
from redlang.runtime.compiler import Compiler
from redlang.runtime.cuda_course import Arrays, Course, Image
from redlang.schedule.device import Device
from redlang.targets.toolchain import installed_versions
from redlang.values import dataclass

if TYPE_CHECKING:
    from redlang.runtime.cuda_code import CudaCode
    from redlang.runtime.cuda_compiler import CudaCompiler


@dataclass(frozen=True, slots=True)
class Images:
    """What the disk cache keeps of code: what a device loads.

    Attributes:
        images: Of each kernel.
    """

    images: tuple[Image, ...]


@dataclass(frozen=True, slots=True)
class Recalled:
    """What the disk cache keeps of a call: the first of its kind needs no plan in later processes.

    Attributes:
        what: The call in words.
        code: The key of its images.
        course: What it launches.
        record: The key of what may be measured for its class.
        measured: The digest of what was, when the plan was chosen.
    """

    what: str
    code: str
    course: Course
    record: str
    measured: str


class CudaFinder:
    """Finds what runs calls of one program on one kind of GPU."""

    def __init__(self, compiler: Compiler, device: Device) -> None:
        """Serve what `compiler` compiles, on `device`."""
        self.program_compiler = compiler
        self.device = device
        self._images: dict[str, tuple[Image, ...]] = {}
        self._latest: tuple[Mapping[str, int], Arrays] | None = None

    @functools.cached_property
    def compiler(self) -> CudaCompiler:
        """What makes plans and code; it knows the latest call."""
        from redlang.runtime.cuda_compiler import CudaCompiler  # noqa: PLC0415  (see above)

        made = CudaCompiler(self.program_compiler, self.device)
        if self._latest is not None:
            made.find(*self._latest)
        return made

    def recall(
        self, extents: Mapping[str, int], arrays: Arrays, words: Sequence[str]
    ) -> tuple[tuple[Image, ...], Course] | None:
        """Return what a call loads and launches, if an earlier process has left it.

        Where there is a compiler already, or the kernel is tuned, plans are looked at anew.

        Args:
            extents: Extents of all axes.
            arrays: What is known of its arrays.
            words: What else its course depends on.
        """
        if "compiler" in self.__dict__ or self.program_compiler.options.tune:
            return None
        start = time.perf_counter()
        store = disk()
        found = unpickled(store, self._key(extents, arrays, words), Recalled)
        if found is None or _measured(found.record) != found.measured:
            return None
        if found.code not in self._images:
            kept = unpickled(store, found.code, Images)
            if kept is None:
                return None
            self._images[found.code] = kept.images
            self.program_compiler.history.note(found.what, start, compiled=False)
        self._latest = extents, arrays
        return self._images[found.code], found.course

    def remember(
        self,
        extents: Mapping[str, int],
        arrays: Arrays,
        words: Sequence[str],
        code: CudaCode,
        course: Course,
    ) -> None:
        """Keep what a call loads and launches for later processes."""
        compiler = self.compiler
        if self.program_compiler.options.tune or compiler.forced is not None:
            return
        assert compiler.last_choice is not None
        record = compiler.record_key(compiler.last_choice)
        images = Images(code.images)
        name = digest("cuda images", *(image.cubin for image in images.images), repr(course.name))
        store = disk()
        keep(store, name, images)
        what = compiler.words(compiler.last_choice, extents)
        kept = Recalled(what, name, course, record, _measured(record))
        keep(store, self._key(extents, arrays, words), kept)

    def _key(self, extents: Mapping[str, int], arrays: Arrays, words: Sequence[str]) -> str:
        made_of = self.program_compiler.program, self.program_compiler.options, self.device
        call = repr(sorted(extents.items())), repr(arrays), *words
        own = (*map(repr, made_of), *call)
        return digest("cuda call", *own, *versions(), installed_versions())


def _measured(record: str) -> str:
    """Return the digest of what has been measured for a class by now."""
    return digest(disk().load(record) or b"")
