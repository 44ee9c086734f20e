"""What a graph tells while it is optimised, to whoever asked torch for logs, files or a trace.

``TORCH_LOGS`` selects lines (``zendnn``) and whole graphs (``zendnn_graph``), and
``TORCH_COMPILE_DEBUG=1`` the files. ``TORCH_TRACE`` gets the graphs for tlparse. Text is made only
for those who asked.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._dynamo.utils import get_debug_dir
from torch._guards import CompileContext, CompileId, compile_context
from torch._logging import getArtifactLogger, trace_structured
from torch.backends.zendnn.frontends import LeftOut
from torch.backends.zendnn.frontends.fx.functions import compiling_backend
from torch.backends.zendnn.frontends.schedule import Schedule
from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node, Value

log = logging.getLogger(__name__)
#: torch's name of the logs of whole graphs, which ``_hooks`` registers.
GRAPHS = "zendnn_graph"
graph_log = getArtifactLogger(__name__, GRAPHS)

_TORCH = f"{Path(torch.__file__).parent}{os.sep}"
_runs = itertools.count()


@dataclass(frozen=True)
class Capture:
    """How Dynamo came to capture a graph.

    Attributes:
        name: AOTAutograd's name of the graph.
        compile_id: what torch's logs and traces put the graph under.
        backend: the backend that Dynamo called.
        graph_break: why and where Dynamo ended the graph; empty where it did not have to.
        sources: where Dynamo found each of the inputs.
    """

    name: str = "graph"
    compile_id: CompileId | None = None
    backend: Any = None
    graph_break: str = ""
    sources: Sequence[Any] = ()

    @staticmethod
    def of(module: fx.GraphModule) -> Capture:
        """Return how a graph was captured, while Dynamo compiles it."""
        return Capture(
            compile_id=CompileContext.current_compile_id(),
            backend=compiling_backend(),
            graph_break=_graph_break(module),
            sources=[
                getattr(node, "_dynamo_source", None)
                for node in module.graph.nodes
                if node.op == "placeholder"
            ],
        )

    def inside(self) -> contextlib.AbstractContextManager[Any]:
        """Put what is logged under the graph's compilation, which is over when plans are made."""
        return compile_context(CompileContext(self.compile_id))

    def name_of(self, placeholder: fx.Node) -> str:
        """Return the model's name of an input of AOTAutograd's graph, such as ``conv.weight``."""
        described = placeholder.meta.get("desc")
        position = getattr(described, "idx", None)
        source = self.sources[position] if position is not None else None
        name = getattr(source, "name", None)
        if name is None:
            return str(getattr(described, "target", placeholder.name))
        found: str = name() if callable(name) else name  # a method in older torches
        found = re.sub(r"\._(?:modules|parameters|buffers)\['(\w+)'\]", r".\1", found)
        return found.removeprefix("L['self'].")


#: A graph of which nothing is known.
UNKNOWN = Capture()


def _graph_break(module: fx.GraphModule) -> str:
    why = getattr(module, "compile_subgraph_reason", None)
    if why is None or not why.graph_break:
        return ""
    reason = str(why.reason).partition("\n")[0]
    frame = why.user_stack[-1] if why.user_stack else None
    return reason if frame is None else f"{frame.filename}:{frame.lineno}: {reason}"


def line_of(node: fx.Node | None) -> str:
    """Return the line of the model that a node comes from: ``file:number: code``.

    Empty when nobody noted it.
    """
    stack = (node.meta.get("stack_trace") if node is not None else None) or ""
    found = re.findall(r'File "(.+)", line (\d+), in .*\n +(.*)', stack)
    own = [parts for parts in found if not parts[0].startswith(_TORCH)] or found
    return "{}:{}: {}".format(*own[-1]) if own else ""


@dataclass
class GraphLog:
    """Tells of one graph, from its import to its plans."""

    capture: Capture
    #: How often each pass changed the graph, of those that did.
    changes: dict[str, int] = field(default_factory=dict)
    _folder: Path | None = None

    def imported(self, graph: Graph) -> None:
        """Tell what came in."""
        if os.environ.get("TORCH_COMPILE_DEBUG", "0") == "1":
            name = f"{self.capture.name}.{next(_runs)}"
            self._folder = Path(get_debug_dir(), "zendnn", name)
            self._folder.mkdir(parents=True)
        self._write("imported", graph)

    def changed(self, name: str, graph: Graph, count: int) -> None:
        """Tell what a pass has changed."""
        self.changes[name] = count
        self._write(name, graph)

    def _write(self, name: str, graph: Graph) -> None:
        if self._folder is not None:
            self._save(name, "\n".join(_lines(graph.inputs, graph.nodes, graph.outputs)))

    def _save(self, name: str, text: str) -> None:
        assert self._folder is not None
        number = len(list(self._folder.iterdir()))
        (self._folder / f"{number:02}_{name}.txt").write_text(text + "\n", encoding="utf-8")

    def planned(self, schedule: Schedule, left_out: Sequence[LeftOut]) -> None:
        """Tell what became of the graph: its regions, and what is outside."""
        name = self.capture.name
        if log.isEnabledFor(logging.INFO):
            regions = list(schedule.outputs)
            log.info(
                "%s: regions %d, operators in them %d, operators left out %d",
                name,
                len(regions),
                sum(len(region.nodes) for region in regions),
                sum(item.count for item in left_out),
            )
            for item in left_out:
                lines = "".join(f"\n  {line}" for line in item.lines)
                log.info("left out: %d x %s: %s%s", item.count, item.op, item.reason, lines)
            if self.capture.graph_break:
                log.info("ended by a graph break: %s", self.capture.graph_break)
            changes = ", ".join(f"{key} {count}" for key, count in self.changes.items())
            log.debug("changes by passes: %s", changes or "none")
        if graph_log.isEnabledFor(logging.DEBUG):
            graph_log.debug("%s\n%s", name, _regions(schedule))
        if self._folder is not None:
            self._save("regions", _regions(schedule))
        trace_structured(
            "artifact",
            metadata_fn=lambda: {"name": GRAPHS, "encoding": "string"},
            payload_fn=lambda: _regions(schedule),
            expect_trace_id=False,
        )


# Graphs as people read them: the lines of a description (docs/plan.md) with types.


def _regions(schedule: Schedule) -> str:
    """Return the regions and what stays outside, in the order in which they run."""
    reasons = {node.source: node.reason for node in schedule.imported.graph.nodes}
    lines: list[str] = []
    count = itertools.count()
    for item in schedule.order:
        if item.region is None:
            (node,) = item.nodes
            why = reasons.get(node)
            lines.append(node.format_node() + (f"  # {why}" if why else ""))
            continue
        region, results = item.region, schedule.outputs[item.region].values()
        lines.append(f"region zendnn_{next(count)}:")
        lines += [f"  {line}" for line in _lines(region.inputs, region.nodes, results)]
    return "\n".join(lines)


def _lines(
    inputs: Iterable[Value], nodes: Sequence[Node], outputs: Iterable[Value]
) -> Iterator[str]:
    """Yield a straight line of nodes; comments name the nodes of FX and the model's operators."""
    constants = dict.fromkeys(
        value for node in nodes for value in node.values() if value.constant is not None
    )
    for kind, values in (("input", inputs), ("constant", constants)):
        yield from (f"{_typed(value)} = {kind}{_comment(value.source)}" for value in values)
    for node in nodes:
        result = ", ".join(map(_typed, node.outputs))
        words = [result, "=", str(node).partition(" = ")[2]]
        if does := "+".join(node.origin):
            words.append(f" # {does}" + (f": {node.reason}" if node.reason else ""))
        yield " ".join(words)
    results = list(outputs)
    sources = ", ".join(str(value.source) for value in results)
    yield f"return {', '.join(map(str, results))}" + (f"  # {sources}" if results else "")


def _typed(value: Value) -> str:
    if value.kind != "tensor":
        return f"{value}: {value.kind}"
    dims = "" if value.dims is None else ", ".join("?" if d is None else str(d) for d in value.dims)
    return f"{value}: {value.dtype or '?'}" + ("" if value.dims is None else f"[{dims}]")


def _comment(source: Any) -> str:
    return "" if source is None else f"  # {source}"
