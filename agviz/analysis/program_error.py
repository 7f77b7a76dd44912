"""What torch raised outside of backward because of what backward needs, and ended the program."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import nodes_beside
from agviz.analysis.nonleaf_gradient import nonleaf_gradient
from agviz.analysis.source import source_line
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.untrained import untrained
from agviz.traces.rows import visible
from agviz_engine.events import NO_GRAPH_TASK

if TYPE_CHECKING:
    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow, Frame


_GRADIENT: Final = r"\.grad\b(?!\()"
"""The attribute, and not ``grad_fn`` or ``autograd.grad(...)``."""


class _Known(NamedTuple):
    """An exception of torch."""

    part: str
    """Of its message."""
    heading: str
    paragraph: str
    is_view: bool = False
    """Whether it is about a view, and who made that is worth to know."""
    line: str = ""
    """What the line at which it was raised holds, as a pattern: the message says too little."""


_KNOWN: Final = (
    _Known(
        "is the output of a function that returns multiple views",
        "one of several views that a function gave was modified in place",
        "It is one of several views of the same tensor (unbind, split and chunk give such, and so"
        " does a loop over a tensor): a view of several must not be modified in place. Use the"
        " operation out of place there (x = x + y in place of x += y), or modify a clone() of the"
        " view.",
        is_view=True,
    ),
    _Known(
        "A view was created in no_grad mode and is being modified inplace",
        "a view made under no_grad was modified in place with gradients on",
        "The view was made under torch.no_grad(), so what is written through it can't be part of"
        " the graph. Move both into no_grad, or both out of it.",
        is_view=True,
    ),
    _Known(
        "A view was created in inference mode and is being modified inplace",
        "a view made under inference_mode was modified in place outside of it",
        "The view was made under torch.inference_mode(), so what is written through it can't be"
        " part of the graph. Move both into inference_mode, or both out of it.",
        is_view=True,
    ),
    _Known(
        "This view was created inside a custom Function",
        "a view that a custom Function gave was modified in place",
        "The output of a custom Function is a view of its input, or the input itself: to modify it"
        " in place would go round the backward of the Function. Return a clone() from its forward,"
        " or use the operation out of place.",
        is_view=True,
    ),
    _Known(
        "a leaf Variable that requires grad is being used in an in-place operation",
        "a parameter was modified in place while gradients were on",
        "The tensor is a leaf that requires a gradient: backward would lose the value that its"
        " gradient belongs to. To set its value, write under torch.no_grad() (torch.nn.init does);"
        " to compute with it, use the function that gives a new tensor.",
    ),
    _Known(
        "a view of a leaf Variable that requires grad is being used in an in-place operation",
        "a part of a parameter was modified in place while gradients were on",
        "The tensor is a view of a leaf that requires a gradient. To set its values, write under"
        " torch.no_grad(); to compute with it, use torch.where, index_put or cat, which give new"
        " tensors.",
    ),
    _Known(
        "directly access saved tensors after they have already been freed",
        "tensors that a node had saved were read after backward had freed them",
        "backward frees what the graph saved once it has used it. Read it before backward, keep a"
        " detached copy (x.detach().clone()), or pass retain_graph=True if the graph is needed"
        " again.",
    ),
    _Known(
        "is not a leaf Variable that requires grad and does not retain",
        "the gradient of a tensor that is no leaf was read",
        "Only leaves keep .grad. Call retain_grad() on the tensor before backward.",
    ),
    _Known(
        "Inplace update to inference tensor",
        "a tensor made under inference_mode was modified outside of it",
        "Make a copy of it outside of inference_mode with clone(), or use torch.no_grad() instead.",
    ),
    _Known(
        "Inference tensors cannot be saved for backward",
        "a tensor made under inference_mode is used where gradients are computed",
        "Make a copy of it outside of inference_mode with clone(), or use torch.no_grad() instead.",
    ),
    _Known(
        "you can only change requires_grad flags of leaf variables",
        "requires_grad was changed of a tensor that is no leaf",
        "Detach it first (x.detach()), or set the flag before anything is computed.",
    ),
    _Known(
        "Can't call numpy() on Tensor that requires grad",
        "the values of a tensor with a graph were taken to numpy",
        "Use x.detach().numpy(); what numpy computes has no gradient.",
    ),
    _Known(
        "Only Tensors of floating point and complex dtype can require gradients",
        "a tensor of integers was to require a gradient",
        "Convert it first, as by float().",
    ),
    _Known(
        "No inf checks were recorded for this optimizer",
        "a GradScaler was to step an optimizer none of whose parameters had a gradient",
        "Nothing that the optimizer holds had a gradient at this step: it took no part in the loss"
        " that was scaled. Call scaler.step for it only after a backward that led to it; where it"
        " should have, agviz why says what cut it off.",
    ),
    _Known(
        "No inf checks were recorded prior to update",
        "a GradScaler was updated that has stepped no optimizer",
        "scaler.update() follows scaler.step(optimizer), which unscales the gradients and looks for"
        " infinities. optimizer.step() in its place steps on gradients that are still multiplied by"
        " the scale: call scaler.step(optimizer) between backward and update.",
    ),
    _Known(
        "can't optimize a non-leaf Tensor",
        "an optimizer was given a tensor that is computed",
        "It has a graph, so it is computed anew of something else in each forward, and a step on it"
        " would be lost. Make it a leaf, as by nn.Parameter(x.detach()) or"
        " x.detach().requires_grad_(), or give the optimizer what it is computed of: .to(), .cuda()"
        " or a product behind requires_grad=True give such tensors.",
    ),
    _Known(
        "optimizer got an empty parameter list",
        "an optimizer was given no parameters",
        "parameters() of that module is empty, or its generator was used up before, as by a loop"
        " over it. Layers in a plain list or dict are not found by parameters(): use nn.ModuleList"
        " or nn.ModuleDict. A filter by requires_grad leaves nothing where all is frozen.",
    ),
    _Known(
        "NoneType",
        ".grad is None where it is read",
        "A parameter has no .grad before a backward pass has led to it, and none after zero_grad():"
        " one that is frozen, that the loss does not use, or that is cut off never has. Leave it"
        " out (if p.grad is not None), or see that it is reached.",
        line=_GRADIENT,
    ),
    _Known(
        "'float' object has no attribute 'backward'",
        "backward was called on a number",
        "What is a number of Python has no graph any more: .item(), float() and .tolist() give"
        " such. Keep the tensor that they were called on for backward.",
    ),
    _Known(
        "'method' object is not iterable",
        "an optimizer was given a method in place of parameters",
        "model.parameters without parentheses is the method itself: write model.parameters().",
        line=r"\.parameters\b",
    ),
    _Known(
        "some parameters appear in more than one parameter group",
        "an optimizer was given parameters twice",
        "Each parameter belongs to one group. A group of model.parameters() holds those of all its"
        " parts, and so does a part of what is inside it: leave out of the one what the other has,"
        " by id(p), and tied weights of one of both.",
    ),
    _Known(
        "The specified number of total steps is",
        "a scheduler was stepped more often than it was made for",
        "total_steps, or epochs times steps_per_epoch, is how often step() may be called: once per"
        " batch where it counts batches, once per epoch where it counts epochs. Make it for as many"
        " as the loop has, resumed ones included.",
    ),
    _Known(
        "does not support sparse gradients",
        "an optimizer got a sparse gradient that it can't take",
        "An embedding with sparse=True gives gradients that are sparse. Leave sparse=True out, or"
        " give its weight to SparseAdam, SGD or Adagrad, in an optimizer of its own.",
    ),
    _Known(
        "(torch.nn.Parameter or None expected)",
        "a tensor was assigned where a module has a parameter",
        "A parameter keeps its place. To set its value, write into it under torch.no_grad()"
        " (weight.copy_(value)); to use a weight that is computed, and train what it is computed"
        " of, delete the parameter first, or use torch.nn.utils.parametrize.",
    ),
    _Known(
        "support the deepcopy protocol at the moment",
        "a tensor with a graph was copied by deepcopy",
        "A module or list that is copied holds a tensor that was computed, as one that forward"
        " keeps in self: deepcopy can't copy its graph. Keep it detached (self.last = x.detach()),"
        " or copy state_dict() in place of the module.",
    ),
    _Known(
        "Expected more than 1 value per channel when training",
        "batch norm in training mode was given one value per channel",
        "Of one value there is no variance. Most often the last batch has one sample: use"
        " drop_last=True, larger batches, or eval() where nothing is trained.",
    ),
    _Known(
        "doesn't match the size of optimizer's group",
        "the state of an optimizer was loaded into one that holds other parameters",
        "Both have to hold the same parameters in the same groups and order. Freeze, unfreeze and"
        " add layers in the same way before the optimizer is made, or load the model only.",
    ),
    _Known(
        "unscale_() has already been called on this optimizer since the last update()",
        "gradients were unscaled twice before one step",
        "Call scaler.unscale_ once for each optimizer and step, behind the last backward that adds"
        " to its gradients, and scaler.update() once after the steps.",
    ),
    _Known(
        "step() has already been called since the last update()",
        "a GradScaler was to step an optimizer twice without update()",
        "Call scaler.update() once behind the steps of each iteration.",
    ),
    _Known(
        "Attempting to unscale FP16 gradients",
        "a GradScaler was given gradients in float16",
        "The parameters themselves are float16, as half() makes them. Keep them in float32 and have"
        " autocast choose what runs in float16.",
    ),
    _Known(
        "IndexError: Target ",
        "a target names a class for which there is no output",
        "cross_entropy and nll_loss count classes from 0 to the number of outputs less 1. Labels"
        " that count from 1 have to be one less; more classes need a wider last layer; a number"
        " that marks what is to be left out is given as ignore_index.",
    ),
    _Known(
        "index out of range in self",
        "an embedding was given an index for which it has no row",
        "Indices go from 0 to num_embeddings less 1: the table needs one row more than the largest"
        " index, those for padding and for what is unknown included. Ids with gaps, of which only"
        " the different ones were counted, have to be numbered first: {id: row}.",
    ),
    _Known(
        "all elements of input should be between 0 and 1",
        "binary_cross_entropy was given numbers that are no probabilities",
        "Give it the output of a sigmoid, or give binary_cross_entropy_with_logits what comes"
        " before that. NaN is none, either: a sigmoid gives it where weights or data are NaN.",
    ),
    _Known(
        "expected target dtype to be Long or Byte",
        "the target of cross_entropy is not of integers",
        "It takes the number of the class of each sample, as long(). For a number that is measured"
        " take mse_loss, for one output that says yes or no binary_cross_entropy_with_logits.",
    ),
    _Known(
        "Expected floating point type for target with class probabilities",
        "the target of cross_entropy has the shape of the outputs, and integers",
        "It is taken for the probabilities of the classes then. Give the numbers of the classes"
        " (target.argmax(dim=1) of one-hot rows), or the probabilities as float().",
    ),
    _Known(
        "0D or 1D target tensor expected, multi-target not supported",
        "the target of cross_entropy has a dimension too many",
        "It takes one class for each sample: squeeze(1) a target of [samples, 1].",
    ),
    _Known(
        "must be the same as input size",
        "the target of a loss has another shape than the outputs",
        "Give both the same: squeeze(1) outputs of [samples, 1], or unsqueeze(1) the target. Where"
        " the target holds numbers of classes, the loss is cross_entropy.",
    ),
    _Known(
        "that is different to the input size",
        "the target of a loss has another shape than the outputs",
        "Give both the same: squeeze(1) outputs of [samples, 1], or unsqueeze(1) the target.",
    ),
    _Known(
        "result type Float can't be cast to the desired output type Long",
        "the target of a loss is of integers",
        "binary_cross_entropy_with_logits takes targets as float().",
        line=r"(?i)loss|criterion|bce",
    ),
    _Known(
        "Boolean value of Tensor with more than one value is ambiguous",
        "a loss was given outputs and target where it takes its options",
        "The class makes a module, which is called then: criterion = nn.CrossEntropyLoss() first,"
        " and criterion(output, target) in the loop; or take the function, F.cross_entropy.",
        line=r"\bnn\.\w+Loss\(\s*\w",
    ),
    _Known(
        "mat1 and mat2 must have the same dtype",
        "a layer was given data of another dtype than its weights",
        "Weights are float32 as layers are made; what comes from numpy is float64, and labels or"
        " tokens are integers. Convert the data once, by .float(), or the model by .double().",
    ),
    _Known(
        "object is not iterable",
        "an optimizer was given a module in place of parameters",
        "Give it model.parameters().",
        line=r"\boptim\.\w+\(\s*\w+\s*[,)]",
    ),
    _Known(
        "before Module.__init__() call",
        "a module was given layers before nn.Module was initialised",
        "Call super().__init__() at the beginning of its __init__.",
    ),
    _Known(
        "Half without overflow",
        "a number is too large for float16, in which this is computed",
        "float16 goes up to 65,504; autocast computes linear layers and matrix products in it. A"
        " mask of -1e9 does not fit: take -inf, or torch.finfo(scores.dtype).min, or compute the"
        " scores in float32 (scores.float()).",
        line=r"1e\d|masked_fill|full|clamp|where",
    ),
    _Known(
        "Legacy autograd function with non-static forward",
        "a Function is written in the old style, which torch no longer takes",
        "Its forward and backward must be static methods that get ctx as their first argument, and"
        " it is called by apply, not made as an object: Scale.apply(x, factor). What __init__ took"
        " becomes an argument of forward, and backward returns None for it.",
    ),
    _Known(
        "Weights only load failed",
        "torch.load met an object of a class, and loads tensors only",
        "From torch 2.6 on weights_only=True is what it does unless it is told otherwise. Save"
        " state_dict() and plain values (asdict(config)); for a file that you trust, give"
        " weights_only=False, or allow the class by torch.serialization.add_safe_globals.",
    ),
)


def program_error(trace: Trace) -> StepFinding | None:
    """What ended the program, where it is an exception of autograd outside of backward.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    ended = " ".join(trace.meta.ended.split())
    dump = trace.raised(NO_GRAPH_TASK)
    stack = dump.threads[0].stack if dump is not None and dump.threads else ()
    frame = visible(stack)
    source = "" if frame is None else source_line(frame, trace.path)
    known = next(
        (each for each in _KNOWN if each.part in ended and re.search(each.line, source)), None
    )
    is_of_pass = any(
        row.error and " ".join(row.error.split()) in ended for row in trace.graph_tasks.unfinished
    )
    if known is None or is_of_pass:
        return None
    if known.line == _GRADIENT and (of_no_leaf := _of_no_leaf(trace, frame)) is not None:
        return of_no_leaf
    view = _view(trace) if known.is_view else None
    made = (
        "" if view is None or view.line is None else f"{view.name} at {view.line} made the view. "
    )
    missing = untrained(trace) if known.line == _GRADIENT and trace.graph_tasks else ""
    without = f" {missing}: agviz why says why." if missing else ""
    return StepFinding(
        kind="program error",
        heading=known.heading,
        frame=frame,
        paragraph=made + known.paragraph + without,
        evidence=(
            f"the program ended with {ended}",
            *(f"at {frame}" for frame in stack if not frame.hidden),
        ),
    )


def _of_no_leaf(trace: Trace, frame: Frame | None) -> StepFinding | None:
    """What is said of a gradient read of no leaf: by the forward, else by how the line is written.

    None: nothing shows that it is one.
    """
    recorded = nonleaf_gradient(trace)
    if recorded is not None or frame is None:
        return recorded
    for node in nodes_beside(trace, frame):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value, lineno=line) if (
                line == frame.line
                and any(ast.unparse(each) == f"{name}.grad" for each in ast.walk(value))
            ):
                return StepFinding(
                    kind="no leaf",
                    heading="the gradient of a tensor that is no leaf was read: it stays None",
                    frame=frame,
                    paragraph=(
                        f"{name} = ... makes a new tensor and gives the name to that; torch puts"
                        " gradients into leaves only, so that the next turn finds None. Write into"
                        f" the old one, under torch.no_grad(): {name} -= rate * {name}.grad, then"
                        f" {name}.grad = None; or take an optimizer."
                    ),
                )
    return None


def _view(trace: Trace) -> ForwardOpRow | None:
    """The function that made the tensor that the last function, which raised, was to modify.

    Functions are recorded with ``check_forward`` only.
    """
    ops = trace.forward_ops(NO_GRAPH_TASK)
    if not ops or not ops[-1].error or not ops[-1].inputs:
        return None
    written = ops[-1].inputs[0].tensor
    return next(
        (op for op in reversed(ops[:-1]) if written in {t.tensor for t in op.outputs}), None
    )
