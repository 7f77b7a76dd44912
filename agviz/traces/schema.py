"""The trace file: one SQLite database per recorded process, described column by column.

Everything numeric is an INTEGER and every text is stored once in ``string``; elsewhere a text is
the ``id`` of its row there, 0 for "none". Times are ``time.monotonic_ns()`` minus the recording's
``start_ns`` (in ``meta``). The reader accepts a file only where the stored schema equals this one
word by word, so no trigger, view or virtual table of a stranger is ever in a query's way.
"""

from __future__ import annotations

APPLICATION_ID = 0x61677678
"""``PRAGMA application_id``: "agvx" in ASCII."""

SCHEMA_VERSION = 20
"""``PRAGMA user_version``. Raised by one with every change of the tables below."""

_MEASURED = """\
    tensor_type INTEGER NOT NULL,  -- tensor_type
    nan INTEGER NOT NULL,
    posinf INTEGER NOT NULL,
    neginf INTEGER NOT NULL,
    zero INTEGER NOT NULL,
    min REAL,                      -- of the finite numbers, as are the following;
    max REAL,                      -- NULL: there are none
    mean REAL,
    norm REAL
"""

TABLES: dict[str, str] = {
    # Facts about the recording: script, argv, pid, versions, clocks, what was chosen.
    "meta": """
CREATE TABLE meta (
    key TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL            -- JSON
) WITHOUT ROWID""",
    # Each text once.
    "string": """
CREATE TABLE string (
    id INTEGER PRIMARY KEY,        -- from 1
    text TEXT NOT NULL             -- at most TEXT_LIMIT characters
)""",
    # Threads that took part in the engine, or on which an optimizer stepped.
    "thread": """
CREATE TABLE thread (
    id INTEGER PRIMARY KEY,        -- dense id, as in the events
    name INTEGER NOT NULL,         -- string
    queue INTEGER NOT NULL,        -- device index of its ReadyQueue, -1: a caller of backward
    native_id INTEGER NOT NULL     -- thread id of the operating system
)""",
    # One row per call of backward or grad; also holds what GraphTaskBegun says.
    "graph_task": """
CREATE TABLE graph_task (
    id INTEGER PRIMARY KEY,        -- as in the events
    parent INTEGER NOT NULL,       -- graph task that made this reentrant call, -1: none
    parent_node INTEGER NOT NULL,  -- node of the parent, -1: none
    depth INTEGER NOT NULL,        -- reentrant depth
    keep_graph INTEGER NOT NULL,   -- 0 or 1
    create_graph INTEGER NOT NULL, -- 0 or 1
    accumulate INTEGER NOT NULL,   -- 1: backward, 0: grad
    roots INTEGER NOT NULL,
    inputs INTEGER NOT NULL,       -- number of inputs=
    thread INTEGER NOT NULL,       -- thread that called
    begin_seq INTEGER NOT NULL,    -- seq of GraphTaskBegun
    begin_t INTEGER NOT NULL,      -- ns since the start of the recording
    nodes INTEGER NOT NULL,        -- 0 until the dependencies are computed
    edges INTEGER NOT NULL,
    end_seq INTEGER,               -- seq of GraphTaskFinished or GraphTaskFailed
    end_t INTEGER,                 -- NULL: did not end while recorded
    error INTEGER NOT NULL,        -- string, type of the exception; 0: did not fail
    message INTEGER NOT NULL,      -- string
    executed INTEGER,              -- nodes whose function was called; NULL: the graph
                                   -- task did not finish, nor was the recording closed
    traced INTEGER NOT NULL,       -- 1: while torch.compile or the like was tracing
    withdrawn INTEGER              -- seq of InferenceWithdrawn: nothing of queues and dependencies
                                   -- is known from there on; NULL: did not happen
)""",
    # Backward passes that were recorded, and then left out to keep the file within its size, or not
    # recorded, where only some were to be (``thinned`` in ``meta``): of the graph tasks without a
    # parent from the first up to the last, none is in the file.
    "left_out": """
CREATE TABLE left_out (
    first INTEGER PRIMARY KEY,     -- graph task
    last INTEGER NOT NULL,         -- graph task
    passes INTEGER NOT NULL,       -- how many were left out
    reentrant INTEGER NOT NULL     -- graph tasks inside of those
)""",
    # The graph as compute_dependencies met it.
    "node": """
CREATE TABLE node (
    graph_task INTEGER NOT NULL,
    idx INTEGER NOT NULL,          -- dense, 0 is a root
    name INTEGER NOT NULL,         -- string, torch's node.name()
    sequence_nr INTEGER,           -- NULL: AccumulateGrad
    topological_nr INTEGER NOT NULL,
    queue INTEGER NOT NULL,        -- device index, -1: the caller's queue
    num_inputs INTEGER NOT NULL,
    dependencies INTEGER NOT NULL, -- number of gradients it waits for
    parameter INTEGER NOT NULL,    -- string, name of AccumulateGrad's variable
    module INTEGER NOT NULL,       -- string, path of the module whose forward made it
    shapes INTEGER NOT NULL,       -- string, shapes of its input gradients: "[2, 3];[];[4]";
                                   -- 0: not known
    recorded INTEGER NOT NULL,     -- 1: its events are in the file; 0: they were left out
    PRIMARY KEY (graph_task, idx)
) WITHOUT ROWID""",
    # Frames of stacks.
    "frame": """
CREATE TABLE frame (
    id INTEGER PRIMARY KEY,        -- from 1
    file INTEGER NOT NULL,         -- string
    line INTEGER NOT NULL,
    function INTEGER NOT NULL,     -- string
    hidden INTEGER NOT NULL        -- 1: it belongs to torch, agviz, pytest or the standard library
)""",
    # Source lines of frames that are not hidden, where the file was there.
    "source_line": """
CREATE TABLE source_line (
    file INTEGER NOT NULL,         -- string, as in frame
    line INTEGER NOT NULL,
    text INTEGER NOT NULL,         -- string, without indentation, at most SOURCE_LIMIT characters
    PRIMARY KEY (file, line)
) WITHOUT ROWID""",
    # Files with such frames as they were when the first of these was met, as far as they are small
    # and were there.
    "source_file": """
CREATE TABLE source_file (
    file INTEGER PRIMARY KEY,      -- string, as in frame
    bytes BLOB NOT NULL            -- UTF-8 text, at most SOURCE_FILE_LIMIT bytes, deflated by zlib
)""",
    # Stacks, each as its innermost frame and the stack of the caller.
    "stack": """
CREATE TABLE stack (
    id INTEGER PRIMARY KEY,        -- from 1, larger than its caller's
    caller INTEGER NOT NULL,       -- stack, 0: this frame is the outermost
    frame INTEGER NOT NULL         -- frame
)""",
    # Where nodes were created.
    "origin": """
CREATE TABLE origin (
    graph_task INTEGER NOT NULL,
    node INTEGER NOT NULL,
    stack INTEGER NOT NULL,        -- stack
    PRIMARY KEY (graph_task, node)
) WITHOUT ROWID""",
    # Tensors that nodes had saved for backward when the dependencies were computed.
    "saved": """
CREATE TABLE saved (
    graph_task INTEGER NOT NULL,
    node INTEGER NOT NULL,
    number INTEGER NOT NULL,       -- among those of the node, from 0
    name INTEGER NOT NULL,         -- string, as in torch's _saved_<name>
    shape INTEGER NOT NULL,        -- string: "[2, 3]"; 0: not known, as where a hook packed it
    dtype INTEGER NOT NULL,        -- string: "float32"; 0: not known
    bytes INTEGER,                 -- of its elements; NULL: not known
    PRIMARY KEY (graph_task, node, number)
) WITHOUT ROWID""",
    # What nodes had saved that put out a non-finite gradient although all gradients they were given
    # were finite. Empty at --values none.
    "saved_health": """
CREATE TABLE saved_health (
    graph_task INTEGER NOT NULL,
    node INTEGER NOT NULL,
    number INTEGER NOT NULL,       -- among those of the node, from 0
    name INTEGER NOT NULL,         -- string, as in torch's _saved_<name>
    parameter INTEGER NOT NULL,    -- string, name of the parameter that it is; 0: none
    value INTEGER,                 -- string, text of what is no tensor; NULL: a tensor
    health INTEGER,                -- measured; NULL: no tensor
    PRIMARY KEY (graph_task, node, number)
) WITHOUT ROWID""",
    # What the tensors that were measured are like.
    "tensor_type": """
CREATE TABLE tensor_type (
    id INTEGER PRIMARY KEY,        -- from 1
    dtype INTEGER NOT NULL,        -- string: "float32"
    shape INTEGER NOT NULL,        -- string: "[2, 3]"; 0: not known
    device INTEGER NOT NULL,       -- string: "cpu"
    layout INTEGER NOT NULL,       -- string: "strided"
    numel INTEGER NOT NULL,
    bytes INTEGER NOT NULL,        -- in memory; 0: not known
    numbers INTEGER NOT NULL,      -- how many are looked at
    unknown INTEGER NOT NULL       -- string, why nothing is measured; 0: it is
)""",
    # What was measured of tensors that are no gradients; columns as in health.
    "measured": f"""
CREATE TABLE measured (
    id INTEGER PRIMARY KEY,        -- from 1
{_MEASURED})""",
    # The parameters whose names are known; a set is written when it is not that of an earlier graph
    # task.
    "parameter": """
CREATE TABLE parameter (
    parameters INTEGER NOT NULL,   -- number of the set, from 1
    number INTEGER NOT NULL,       -- among those of the set, from 0
    name INTEGER NOT NULL,         -- string
    shape INTEGER NOT NULL,        -- string: "[2, 3]"; 0: not known
    dtype INTEGER NOT NULL,        -- string: "float32"
    requires_grad INTEGER NOT NULL,  -- 0 or 1
    norm REAL,                     -- when it was first known; NULL: not measured, or not finite
    PRIMARY KEY (parameters, number)
) WITHOUT ROWID""",
    # Which set was known when the dependencies of a graph task were computed.
    "parameters": """
CREATE TABLE parameters (
    graph_task INTEGER PRIMARY KEY,
    parameters INTEGER NOT NULL,   -- parameter
    had_grad INTEGER NOT NULL      -- string, 0 or 1 for each: whether its .grad was there, of
                                   -- those that this thread trains; one for
                                   -- all where they are alike; 0: there are none
)""",
    # Torch functions that the program called. Empty without --check-forward.
    "forward_op": """
CREATE TABLE forward_op (
    id INTEGER PRIMARY KEY,        -- in order of calls, from 0
    t INTEGER NOT NULL,            -- ns since the start of the recording
    thread INTEGER NOT NULL,
    name INTEGER NOT NULL,         -- string: "torch.sqrt"
    arguments INTEGER NOT NULL,    -- string: "tensor, 0.5"; 0: only tensors
    module INTEGER NOT NULL,       -- string, path of the module in whose forward it was called
    stack INTEGER NOT NULL,        -- stack; 0: not known
    grad_enabled INTEGER NOT NULL, -- 0 or 1
    graph_task INTEGER NOT NULL,   -- the next that began, or in which it was called; -1: none
    recomputed_in INTEGER NOT NULL,  -- graph task during which it was called, -1: none
    sequence_nr INTEGER,           -- of the node of its first output; NULL: it made none
    first_nr INTEGER NOT NULL,     -- sequence numbers of the nodes that it made: from this one on,
    end_nr INTEGER NOT NULL,       -- up to, but not including, this one
    error INTEGER NOT NULL         -- string, type of the exception; 0: it returned
)""",
    # What they took, and what they gave back or changed.
    "forward_tensor": """
CREATE TABLE forward_tensor (
    op INTEGER NOT NULL,           -- forward_op
    number INTEGER NOT NULL,       -- among its inputs, from 0, and then its outputs
    is_output INTEGER NOT NULL,    -- 0 or 1
    place INTEGER NOT NULL,        -- string: number or name of the argument: "0", "dim", "0[3]"
    tensor INTEGER NOT NULL,       -- the same for one and the same tensor only, from 0
    memory INTEGER NOT NULL,       -- the same for tensors with one storage only; -1: none
    version INTEGER,               -- NULL: it has none
    parameter INTEGER NOT NULL,    -- string, name of the parameter that it is; 0: none
    shape INTEGER NOT NULL,        -- string: "[2, 3]"; 0: not known
    dtype INTEGER NOT NULL,        -- string: "float32"
    requires_grad INTEGER NOT NULL,  -- 0 or 1
    is_leaf INTEGER NOT NULL,      -- 0 or 1
    health INTEGER,                -- measured; NULL: nothing was
    PRIMARY KEY (op, number)
) WITHOUT ROWID""",
    # Where in a tensor something is not finite that was made of finite things, or (--elements) the
    # largest element of a gradient is, and what is known of its axes: a row for the first place of
    # elements, one for all of them, and one for each tensor of the forward they were followed to.
    "located": """
CREATE TABLE located (
    graph_task INTEGER NOT NULL,   -- whose node it is; -1: of a torch function
    node INTEGER NOT NULL,         -- that put it out; -1
    op INTEGER NOT NULL,           -- forward_op that gave it, or was given it; -1: of a node
    slot INTEGER NOT NULL,         -- output of the node, or number in forward_tensor
    number INTEGER NOT NULL,       -- 0: the first place, 1: all, then in order of the way
    total INTEGER NOT NULL,        -- elements in all
    value REAL,                    -- the largest element; NULL: they are not finite
    what INTEGER NOT NULL,         -- string: "first", "all", "function", "given", ...
    name INTEGER NOT NULL,         -- string, of the function; 0: none
    axes INTEGER NOT NULL,         -- string: "sample:8:3:0;:5:*:1", see agviz/traces/elements.py
    PRIMARY KEY (graph_task, node, op, slot, number)
) WITHOUT ROWID""",
    "edge": """
CREATE TABLE edge (
    graph_task INTEGER NOT NULL,
    producer INTEGER NOT NULL,     -- node
    output INTEGER NOT NULL,       -- number among the producer's outputs
    consumer INTEGER NOT NULL,     -- node
    slot INTEGER NOT NULL,         -- number among the consumer's inputs
    PRIMARY KEY (graph_task, producer, output)
) WITHOUT ROWID""",
    # Everything that happened: emissions of the engine, each of which is one event or two.
    # agviz_engine/emissions.py and agviz/traces/codec.py say which field is in which column.
    "event": """
CREATE TABLE event (
    seq INTEGER PRIMARY KEY,       -- position in the total order
    t INTEGER NOT NULL,            -- ns since the start of the recording
    thread INTEGER NOT NULL,
    graph_task INTEGER NOT NULL,   -- -1: none
    kind INTEGER NOT NULL,         -- position in agviz_engine.events.EVENT_TYPES, or a step:
                                   -- 26 QueuePop at seq unless b is -1, NodeStarted at seq + 1;
                                   -- 27 DependencyDecremented at seq, and GradientAccumulated at
                                   -- seq + 1 unless e is -1; 28 NodeFinished at seq + 1, and if b
                                   -- is 1 SavedTensorsReleased at seq
    node INTEGER,                  -- NULL: the event concerns no node
    a INTEGER,                     -- the other fields of the kind, in their order;
    b INTEGER,                     -- a text is the id of its string
    c INTEGER,
    d INTEGER,
    e INTEGER
)""",
    # What was measured of gradients. A complex element counts as two numbers, of a sparse tensor
    # the stored values count. Empty at --values none.
    "health": f"""
CREATE TABLE health (
    seq INTEGER PRIMARY KEY,       -- seq in event: NonFiniteChecked for what a node puts out,
                                   -- GradientAccumulated for a root's gradient and for the sum
                                   -- of several, LeafAccumulated, GradientCaptured
{_MEASURED})""",
    # Gradients that were copied, or were to be: a row for each that flowed, as long as there was
    # room. Empty unless --values full.
    "tensor": """
CREATE TABLE tensor (
    seq INTEGER PRIMARY KEY,       -- seq of the event, as in health
    dtype INTEGER NOT NULL,        -- string: "float32"
    shape INTEGER NOT NULL,        -- string: "[2, 3]"; "[2, null]": null is the ragged dimension of
                                   -- a jagged tensor; 0: not known
    layout INTEGER NOT NULL,       -- string: "strided"
    coalesced INTEGER NOT NULL,    -- 1: a sparse_coo tensor marked as coalesced; else 0
    unknown INTEGER NOT NULL       -- string, why its elements are not here; 0: they are
)""",
    # The strided tensors that such a gradient consists of. By its layout: strided: values, in whose
    # shape the dimensions along which the gradient was expanded have size 1. sparse_coo: indices,
    # values. sparse_csr, sparse_bsr: crow_indices, col_indices, values. sparse_csc, sparse_bsc:
    # ccol_indices, row_indices, values. jagged: offsets, values, and lengths where it has them.
    "part": """
CREATE TABLE part (
    seq INTEGER NOT NULL,          -- tensor
    name INTEGER NOT NULL,         -- string: "values"
    dtype INTEGER NOT NULL,        -- string: "float32"
    shape INTEGER NOT NULL,        -- string: "[2, 3]"
    chunk INTEGER NOT NULL,        -- its first chunk, the others follow; 0: it has no elements.
                                   -- Parts with the same bytes may have the same chunks
    PRIMARY KEY (seq, name)
) WITHOUT ROWID""",
    # The elements of parts, in order of their indices, as little-endian numbers without gaps. All
    # chunks of a part but the last have CHUNK_BYTES.
    "chunk": """
CREATE TABLE chunk (
    id INTEGER PRIMARY KEY,        -- from 1
    bytes BLOB NOT NULL
)""",
    # Nodes that can be run alone: see agviz/repro. Empty unless --repro.
    "isolated": """
CREATE TABLE isolated (
    graph_task INTEGER NOT NULL,
    node INTEGER NOT NULL,
    part INTEGER NOT NULL,         -- from 0
    bytes BLOB NOT NULL,           -- of a safetensors file; all parts but the last have CHUNK_BYTES
    PRIMARY KEY (graph_task, node, part)
) WITHOUT ROWID""",
    # Where the program calls backward and grad.
    "call_site": """
CREATE TABLE call_site (
    graph_task INTEGER PRIMARY KEY,
    stack INTEGER NOT NULL         -- stack
)""",
    # Calls of backward and grad that were handed to torch's own engine: no graph task of ours.
    "native_call": """
CREATE TABLE native_call (
    seq INTEGER PRIMARY KEY,       -- seq of its Delegated
    t INTEGER NOT NULL,            -- ns since the start of the recording
    graph_task INTEGER NOT NULL,   -- the last that had begun before, -1: none
    reason INTEGER NOT NULL,       -- string, why it was handed over
    error INTEGER NOT NULL,        -- string, type of the exception; 0: it returned
    message INTEGER NOT NULL,      -- string
    grad_enabled INTEGER NOT NULL, -- 0 or 1: whether gradients were on at the call
    stack INTEGER NOT NULL,        -- stack of the call; 0: it did not fail, or not known
    disabled INTEGER NOT NULL      -- stack where gradients were turned off; 0: not, or not known
)""",
    # Where the exception came from with which a graph task failed: a dump of the one thread.
    "raised": """
CREATE TABLE raised (
    graph_task INTEGER PRIMARY KEY,
    dump INTEGER NOT NULL          -- dump
)""",
    # The tensors that backward or grad was called on, as far as they are small. Empty at
    # --values none.
    "root": """
CREATE TABLE root (
    graph_task INTEGER NOT NULL,
    number INTEGER NOT NULL,       -- among those of the call, from 0
    health INTEGER NOT NULL,       -- measured
    PRIMARY KEY (graph_task, number)
) WITHOUT ROWID""",
    # When optimizers stepped. A step that raised is none.
    "optimizer_step": """
CREATE TABLE optimizer_step (
    id INTEGER PRIMARY KEY,        -- in order of time, from 0
    begin_t INTEGER,               -- when it was called, ns since the start of the recording;
                                   -- NULL: before it
    t INTEGER NOT NULL,            -- when it returned
    thread INTEGER NOT NULL,       -- on which it was called
    graph_task INTEGER NOT NULL,   -- the last outermost one that had begun, -1: none
    optimizer INTEGER NOT NULL,    -- string, name of its class
    is_guarded INTEGER NOT NULL,   -- 1: it was lent found_inf by a GradScaler, so that it changes
                                   -- nothing where a gradient is not finite; else 0
    sequence_nr INTEGER            -- of the next node that its thread makes after it; NULL: not
                                   -- known
)""",
    # Optimizers, written when each steps for the first time.
    "optimizer": """
CREATE TABLE optimizer (
    id INTEGER PRIMARY KEY,        -- in the order in which they were made or seen, from 0
    name INTEGER NOT NULL,         -- string, name of its class
    made INTEGER NOT NULL,         -- stack that made it, 0: it was there before the recording
    stepped INTEGER NOT NULL       -- stack of its first step, 0: not known
)""",
    # What an optimizer held and found when it stepped.
    "step_fact": """
CREATE TABLE step_fact (
    step INTEGER PRIMARY KEY,      -- optimizer_step
    optimizer INTEGER NOT NULL,    -- optimizer
    least_rate REAL,               -- learning rate of its groups after the step; NULL: not known
    most_rate REAL,
    decay REAL,                    -- largest weight_decay of its groups; NULL: it has none
    eps REAL,                      -- smallest eps of its groups; NULL: it has none
    held INTEGER NOT NULL,         -- number of parameters in its groups
    without_grad INTEGER NOT NULL, -- how many of them had no .grad
    reached INTEGER NOT NULL,      -- to how many a backward pass had led since its last step
    is_kept INTEGER NOT NULL       -- 1: passes had added to gradients that were there, untouched,
                                   -- since its last step; else 0
)""",
    # A few small parameters on the CPU, in the first steps of an optimizer, then ever more rarely.
    "step_sample": """
CREATE TABLE step_sample (
    step INTEGER NOT NULL,         -- optimizer_step
    number INTEGER NOT NULL,       -- in the sample, from 0
    parameter INTEGER NOT NULL,    -- string, its name; 0: it has none
    gradient REAL,                 -- Euclidean norm of .grad when the step was called; NULL: none,
                                   -- or not finite
    norm REAL,                     -- the same of itself; NULL: not finite
    change REAL,                   -- of what the step changed; NULL: not finite
    net REAL,                      -- where it was written after the last measured step: of what it
                                   -- had changed since that was called; NULL: it was not written,
                                   -- or that is not known
    PRIMARY KEY (step, number)
) WITHOUT ROWID""",
    # What an optimizer holds: at first, and again at steps where anything of it is another.
    "held_parameter": """
CREATE TABLE held_parameter (
    optimizer INTEGER NOT NULL,    -- optimizer
    since INTEGER NOT NULL,        -- optimizer_step, from which on it was so
    number INTEGER NOT NULL,       -- in its groups, from 0
    name INTEGER NOT NULL,         -- string; 0: no module that was called has it as a parameter
    shape INTEGER NOT NULL,        -- string: "[2, 3]"
    dtype INTEGER NOT NULL,        -- string: "float32"
    requires_grad INTEGER NOT NULL,-- 0 or 1
    had_grad INTEGER NOT NULL,     -- 1: its .grad was there when the step was called; else 0
    PRIMARY KEY (optimizer, since, number)
) WITHOUT ROWID""",
    # Leaves to which passes led though no optimizer that had been made held them; written from the
    # second pass on, and again.
    "unheld": """
CREATE TABLE unheld (
    leaf INTEGER PRIMARY KEY,      -- in the order in which they were met, from 0
    name INTEGER NOT NULL,         -- string; 0: no module that was called has it as a parameter
    attribute INTEGER NOT NULL,    -- string, where an attribute of a module leads to it that is
                                   -- neither parameter nor module: "blocks[0].weight"; 0: none does
    is_parameter INTEGER NOT NULL, -- 1: it is an nn.Parameter; else 0
    shape INTEGER NOT NULL,        -- string: "[2, 3]"
    passes INTEGER NOT NULL,       -- how many so far; 0: an optimizer holds it now
    graph_task INTEGER NOT NULL,   -- the last of them
    node INTEGER NOT NULL,         -- its AccumulateGrad there
    is_moved INTEGER NOT NULL      -- 1: somebody has written to it in between; else 0
)""",
    # Parameters that were not finite, and buffers with NaN, looked for when the loss of a pass was
    # not finite, and at the end.
    "not_finite": """
CREATE TABLE not_finite (
    graph_task INTEGER NOT NULL,   -- that began; -1: the recording ended
    number INTEGER NOT NULL,       -- among those found then, from 0
    name INTEGER NOT NULL,         -- string
    is_buffer INTEGER NOT NULL,    -- 0 or 1
    optimizer INTEGER NOT NULL,    -- optimizer that holds it, -1: none that has stepped
    step INTEGER NOT NULL,         -- optimizer_step that wrote to it last; -1: something else did
    PRIMARY KEY (graph_task, number)
) WITHOUT ROWID""",
    # How many graphs of passes were alive when a later pass began, at some of them.
    "live_graphs": """
CREATE TABLE live_graphs (
    id INTEGER PRIMARY KEY,        -- in order of time, from 0
    graph_task INTEGER NOT NULL,   -- the pass that was about to run
    passes INTEGER NOT NULL,       -- graphs of the passes before it
    created INTEGER NOT NULL,      -- those of them with create_graph=True
    steps INTEGER NOT NULL,        -- optimizer steps before it
    alive INTEGER NOT NULL,        -- those of the graphs that were alive
    alive_steps INTEGER NOT NULL   -- different numbers of optimizer steps before their passes
)""",
    # What kept most of them alive, where that was looked for.
    "graph_holder": """
CREATE TABLE graph_holder (
    look INTEGER NOT NULL,         -- live_graphs
    number INTEGER NOT NULL,       -- from 0
    kind INTEGER NOT NULL,         -- string: "tensor", "container", "gradient", "closure"
    name INTEGER NOT NULL,         -- string, of the variable, Class.attribute or function; 0: none
    what INTEGER NOT NULL,         -- string, type of the container; 0: it is none
    reached INTEGER NOT NULL,      -- graphs that it keeps
    stack INTEGER NOT NULL,        -- stack that made the tensor, or the function's definition
    PRIMARY KEY (look, number)
) WITHOUT ROWID""",
    # How many hooks modules and parameters had when a pass began, at some of them.
    "hook_count": """
CREATE TABLE hook_count (
    id INTEGER PRIMARY KEY,        -- in order of time, from 0
    graph_task INTEGER NOT NULL,   -- the pass that was about to run
    passes INTEGER NOT NULL,       -- passes before it
    hooks INTEGER NOT NULL,        -- of all modules and parameters
    most INTEGER NOT NULL,         -- of the one that has most
    owner INTEGER NOT NULL,        -- string, name of that; 0: the outermost module, or none
    hook INTEGER NOT NULL,         -- string, name of its last hook; 0: none
    definition INTEGER NOT NULL    -- stack of the one frame where that is defined; 0: not known
)""",
    # Of a process among several of one program (rank is in meta), from here to pause: the process
    # groups in which collectives were called.
    "process_group": """
CREATE TABLE process_group (
    name INTEGER PRIMARY KEY,      -- string
    description INTEGER NOT NULL,  -- string: "default_pg"
    ranks INTEGER NOT NULL         -- string: "[0, 1]", global ranks; "[]": not known
)""",
    # Collectives and point-to-point operations, as torch's flight recorder has them.
    "collective": """
CREATE TABLE collective (
    id INTEGER PRIMARY KEY,        -- in the order in which they were created, from 0
    t INTEGER NOT NULL,            -- when it was created, ns since the start of the recording
    thread INTEGER NOT NULL,       -- thread id of the operating system, 0: not known
    process_group INTEGER NOT NULL,-- string, its name
    seq INTEGER NOT NULL,          -- number among the collectives, or among the point-to-point
                                   -- operations, of the group
    is_p2p INTEGER NOT NULL,       -- 0 or 1
    operation INTEGER NOT NULL,    -- string: "all_reduce"
    shapes INTEGER NOT NULL,       -- string, of its inputs: "[2, 3];[4]"
    dtypes INTEGER NOT NULL,       -- string, of its inputs: "Float;Float"
    is_retired INTEGER NOT NULL,   -- 1: it had completed when it was looked at last
    begin_t INTEGER,               -- when it ran; NULL: not measured (gloo)
    end_t INTEGER,
    stack INTEGER NOT NULL         -- stack
)""",
    # Parameters whose gradients are synchronised: as it was at first, and anew after each change.
    "synchronised": """
CREATE TABLE synchronised (
    since INTEGER NOT NULL,        -- graph task, at the beginning of which that was seen
    parameter INTEGER NOT NULL,    -- string
    unit INTEGER NOT NULL,         -- string, path of the module that does it; "": the outermost
    kind INTEGER NOT NULL,         -- string: "ddp", "fsdp"
    bucket INTEGER NOT NULL,       -- what is reduced together has the same number; -1: not known;
                                   -- -2: none, it came into the module after DDP had wrapped it
    nbytes INTEGER NOT NULL,       -- of its gradient
    is_hooked INTEGER,             -- 1: its AccumulateGrad has a hook made in C++, as the
                                   -- reducer's is; NULL: not known
    converted INTEGER NOT NULL,    -- where it is 0: stack of the last conversion of a module with
                                   -- the parameter; 0: none, or not recorded
    PRIMARY KEY (since, parameter)
) WITHOUT ROWID""",
    # Which microbatch of a pipeline a pass is of.
    "stage": """
CREATE TABLE stage (
    graph_task INTEGER PRIMARY KEY,
    stage INTEGER NOT NULL,
    stages INTEGER NOT NULL,
    microbatch INTEGER NOT NULL
)""",
    # When the forward began whose gradients a pass computes: the first call of a module since the
    # pass before.
    "forward_begun": """
CREATE TABLE forward_begun (
    graph_task INTEGER PRIMARY KEY,
    t INTEGER NOT NULL             -- ns since the start of the recording
)""",
    # That forward: calls of modules by the thread that calls the pass, packed as four columns
    # (agviz.traces.packed): string of the module's path, how many calls it is inside of, and when
    # it began and ended, in ns since forward_begun; -1: it did not end before the pass began.
    "forward_calls": """
CREATE TABLE forward_calls (
    graph_task INTEGER PRIMARY KEY,
    bytes BLOB NOT NULL
)""",
    # Checksum of the names and edges of a pass's nodes: ranks that do the same have the same.
    "fingerprint": """
CREATE TABLE fingerprint (
    graph_task INTEGER PRIMARY KEY,
    checksum INTEGER NOT NULL
)""",
    # What the thread that called a pass had had of the CPU when it began and when it ended: ns for
    # which it had run, and ns for which it had been ready without a CPU, since it was started.
    "scheduled": """
CREATE TABLE scheduled (
    graph_task INTEGER PRIMARY KEY,
    ran_before INTEGER NOT NULL,
    delayed_before INTEGER NOT NULL,
    ran_after INTEGER NOT NULL,
    delayed_after INTEGER NOT NULL
)""",
    # Checksums of some elements of parameters after an optimizer stepped.
    "digest": """
CREATE TABLE digest (
    step INTEGER NOT NULL,         -- optimizer_step
    parameter INTEGER NOT NULL,    -- string
    value INTEGER NOT NULL,
    gradient INTEGER,              -- NULL: it had none
    PRIMARY KEY (step, parameter)
) WITHOUT ROWID""",
    # Where the thread that calls backward was while nothing had happened for a while.
    "pause": """
CREATE TABLE pause (
    id INTEGER PRIMARY KEY,        -- in order of time, from 0
    t INTEGER NOT NULL,            -- ns since the start of the recording
    graph_task INTEGER NOT NULL,   -- the last outermost one that had begun, -1: none
    is_inside INTEGER NOT NULL,    -- 1: it had not ended
    thread INTEGER NOT NULL,       -- thread id of the operating system
    stack INTEGER NOT NULL         -- stack
)""",
    # What the nodes nearest to such a tensor had saved where it is not finite; as saved_health.
    "root_saved": """
CREATE TABLE root_saved (
    graph_task INTEGER NOT NULL,
    node INTEGER NOT NULL,
    number INTEGER NOT NULL,       -- among those of the node, from 0
    name INTEGER NOT NULL,         -- string, as in torch's _saved_<name>
    parameter INTEGER NOT NULL,    -- string, name of the parameter that it is; 0: none
    value INTEGER,                 -- string, text of what is no tensor; NULL: a tensor
    health INTEGER,                -- measured; NULL: no tensor
    PRIMARY KEY (graph_task, node, number)
) WITHOUT ROWID""",
    # What nodes could not use because it had been modified since they saved it.
    "version_error": """
CREATE TABLE version_error (
    graph_task INTEGER NOT NULL,
    node INTEGER NOT NULL,
    name INTEGER NOT NULL,         -- string, as in torch's _saved_<name>
    shape INTEGER NOT NULL,        -- string: "[2, 3]"
    dtype INTEGER NOT NULL,        -- string: "float32"
    version INTEGER NOT NULL,      -- when the node ran
    expected INTEGER NOT NULL,     -- when the node saved it
    parameter INTEGER NOT NULL,    -- string, name of the parameter whose memory it is;
                                   -- 0: none
    memory INTEGER NOT NULL,       -- as in forward_tensor; -1: not known
    PRIMARY KEY (graph_task, node)
) WITHOUT ROWID""",
    # What all threads of the process were doing, at moments when somebody asked or nothing moved;
    # what the one thread was doing that raised.
    "dump": """
CREATE TABLE dump (
    id INTEGER PRIMARY KEY,        -- from 1, in order of time
    t INTEGER NOT NULL,            -- ns since the start of the recording
    reason INTEGER NOT NULL        -- string: "signal", "timeout", "stall", "exit", "raised"
)""",
    "dump_thread": """
CREATE TABLE dump_thread (
    dump INTEGER NOT NULL,         -- dump
    number INTEGER NOT NULL,       -- among the threads of the dump, from 0
    name INTEGER NOT NULL,         -- string
    native_id INTEGER NOT NULL,    -- thread id of the operating system, 0: not known
    stack INTEGER NOT NULL,        -- stack
    PRIMARY KEY (dump, number)
) WITHOUT ROWID""",
    # Which nodes, hooks and final callbacks the engine was in the midst of there.
    "dump_call": """
CREATE TABLE dump_call (
    dump INTEGER NOT NULL,         -- dump
    thread INTEGER NOT NULL,       -- number in dump_thread
    number INTEGER NOT NULL,       -- from 0, each inside the one before
    kind INTEGER NOT NULL,         -- string: "node", "final_callback", or the kind of hook
    graph_task INTEGER NOT NULL,
    node INTEGER NOT NULL,         -- -1: a final callback
    name INTEGER NOT NULL,         -- string, of the hook or callback; 0: none
    definition INTEGER NOT NULL,   -- stack of the one frame where that is defined; 0: not known
    PRIMARY KEY (dump, thread, number)
) WITHOUT ROWID""",
    # Threads that a debugger has stopped; as long as one is stopped, a program does not hang.
    "held": """
CREATE TABLE held (
    id INTEGER PRIMARY KEY,        -- from 1, in order of time
    t INTEGER NOT NULL,            -- ns since the start of the recording
    thread INTEGER NOT NULL,
    graph_task INTEGER NOT NULL,   -- of the event behind which it stopped, -1: none
    node INTEGER NOT NULL,         -- the same
    reason INTEGER NOT NULL,       -- string: "breakpoint", "step", "non-finite"
    end_t INTEGER                  -- when it ran on; NULL: it did not while recorded
)""",
    # Where events are that concern a node; an index of the events would be three times as large.
    # Those between QueuePop and the end of the node, what arrived at it, and the gradients it gave
    # in the block of its end or the next one, are found by its timeline. Empty until the recording
    # is closed.
    "node_block": """
CREATE TABLE node_block (
    graph_task INTEGER NOT NULL,
    node INTEGER NOT NULL,         -- node of an event, or producer of a gradient that arrives
    block INTEGER NOT NULL,        -- seq / BLOCK of some of these events
    PRIMARY KEY (graph_task, node, block)
) WITHOUT ROWID""",
    # Of each graph task (-1: of what belongs to none, -2: of all) the first row in event, the first
    # of its own in blocks of events that are 32 rows or more apart, and the end. Empty until the
    # recording is closed.
    "anchor": """
CREATE TABLE anchor (
    graph_task INTEGER NOT NULL,
    position INTEGER NOT NULL,     -- number of events of the graph task before this row
    seq INTEGER NOT NULL,          -- seq in event; of the last anchor: behind all events
    PRIMARY KEY (graph_task, position)
) WITHOUT ROWID""",
    # When nodes were queued, ran and ended, and what arrived at them: agviz.traces.intervals packs
    # these columns, agviz.traces.packed describes their form. Empty until the recording is closed.
    "timeline": """
CREATE TABLE timeline (
    id INTEGER PRIMARY KEY,        -- graph_task * PARTS, and from there one for each part
    bytes BLOB NOT NULL            -- all parts but the last have PART_BYTES
)""",
    # Graph tasks in columns: graph_task, what was measured of each as a whole, and what of its
    # leaves. agviz.traces.task_facts names them, agviz.traces.packed describes their form. Empty
    # until the recording is closed.
    "run": """
CREATE TABLE run (
    id INTEGER PRIMARY KEY,        -- number of the part, from 0
    bytes BLOB NOT NULL            -- all parts but the last have PART_BYTES
)""",
}
"""The tables, by name. The text is what SQLite stores, comments included."""

OF_GRAPH_TASK = tuple(
    name
    for name, statement in TABLES.items()
    if "PRIMARY KEY (graph_task" in statement or "graph_task INTEGER PRIMARY KEY" in statement
)
"""Tables whose rows belong to one graph task each."""

EARLIER = {
    "graph_task": "id < {graph_task}",
    "optimizer_step": "graph_task < {graph_task}",
    "native_call": "graph_task < {graph_task}",
    "live_graphs": "graph_task < {graph_task}",
    "not_finite": "graph_task BETWEEN 0 AND {graph_task} - 1",
    "step_fact": "step IN {steps}",
    "step_sample": "step IN {steps}",
    "held_parameter": "since IN {steps}",
    "left_out": "0",
    "run": "0",
}
"""Of tables about a whole run: which rows were there before a graph task began."""

COMPUTED, PUSHED, POPPED = range(1, 4)
FAILED, SKIPPED, HOOK_CALLED = range(6, 9)
ARRIVED, CAPTURED, LEAF_ACCUMULATED, CHECKED = range(10, 14)
STARTED, DELIVERED, FINISHED = range(26, 29)
"""Kinds in ``event``: positions in agviz_engine.events.EVENT_TYPES, and steps (TOOK, DELIVERED and
ENDED of agviz_engine.emissions). ARRIVED is the gradient of a root."""

ENDS = (FINISHED, FAILED, SKIPPED)
"""Those of them that end the execution of a node."""

MOVES = (PUSHED, POPPED, STARTED, *ENDS)
"""Those that move a node on."""

AT = f"(event.seq + (event.kind >= {STARTED}))"
"""``seq`` of the event by which a step is found: NodeStarted, GradientAccumulated, NodeFinished."""

OF_EVENT = f"event.seq IN (?, ? - 1) AND {AT} = ?"
"""Condition of the row by which an event is found; its ``seq`` is given three times."""

EXECUTION = f"kind IN {(STARTED, FINISHED, FAILED, SKIPPED)}"
"""Condition of what starts or ends an execution."""

CHECK = "event.kind = 13"
"""Condition of NonFiniteChecked."""

FINDING = "kind = 13 AND b + c + d > 0"
"""Condition of those that found NaN or infinities. SQLite takes an index that is limited to them
only for queries that hold these very words."""

GRADIENT = f"(event.kind = {ARRIVED} OR event.kind = {DELIVERED} AND event.e >= 0)"
"""Condition of what is a GradientAccumulated, among others."""
SLOT = f"iif(event.kind = {DELIVERED}, event.c, event.b)"
NBYTES = f"iif(event.kind = {DELIVERED}, event.e, event.d)"
"""Of a GradientAccumulated: the slot, and the bytes that it holds then."""

IS_FIRST = (
    f"((event.kind <> {FINISHED} OR ifnull(event.b, 0) <> 0)"
    f" AND (event.kind <> {STARTED} OR ifnull(event.b, 0) >= 0))"
)
IS_SECOND = (
    f"(event.kind IN ({STARTED}, {FINISHED})"
    f" OR event.kind = {DELIVERED} AND ifnull(event.e, -1) >= 0)"
)
"""Whether a row is an event at ``seq``, and one at ``seq + 1``."""

INDEXES: dict[str, str] = {
    "event_of_finding": f"CREATE INDEX event_of_finding ON event (graph_task) WHERE {FINDING}",
}
"""Built when the recording is closed; a file without them is read more slowly, but is read."""

BLOCK = 64
"""Events in a block."""

ARRIVAL = f"event.kind IN ({ARRIVED}, {DELIVERED})"
"""Condition of what comes along edges to a node: DependencyDecremented, GradientAccumulated."""

_ENDS = f"kind IN {ENDS}"
_FIRST_END = f"min({AT} << 8 | kind) FILTER (WHERE {_ENDS})"

_OF_START = f"FILTER (WHERE kind = {STARTED})"
MOMENTS = (
    f"SELECT graph_task, node, min(seq) FILTER (WHERE kind = {PUSHED}) AS pushed,"  # noqa: S608 - numbers
    f" min(a) FILTER (WHERE kind = {PUSHED}) AS queue,"
    f" min(seq) FILTER (WHERE kind IN {(POPPED, STARTED)}) AS popped,"
    f" min({AT}) {_OF_START} AS started, {_FIRST_END} >> 8 AS ended, {_FIRST_END} & 255 AS outcome,"
    f" nullif(max(seq) FILTER (WHERE kind = {FAILED}), {_FIRST_END} >> 8) AS failed,"
    f" ifnull(min(thread) {_OF_START}, min(thread) FILTER (WHERE {_ENDS})) AS thread,"
    f" min(t) {_OF_START} AS start_t, min(t) FILTER (WHERE {_ENDS}) AS end_t"
    f" FROM event WHERE kind IN {MOVES}"
)
"""When nodes were queued, ran and ended; to be grouped by graph task and node.

``seq`` of the events that say so: pushed, and into which queue (device index; -1: that of the
calling thread); popped; started; ended, the first of NodeFinished, NodeFailed and NodeSkipped, and
outcome, its kind; failed, NodeFailed of a node that had ended otherwise before. The thread that
took the node up or skipped it, and the times of start and end, in ns since the start of the
recording.
"""

_MAKE_MOMENTS = (
    "CREATE TEMP TABLE moments (graph_task INTEGER, node INTEGER, pushed, queue, popped, started,"
    " ended, outcome, failed, thread, start_t, end_t, PRIMARY KEY (graph_task, node)) WITHOUT ROWID"
)
FIND_MOMENTS = (
    _MAKE_MOMENTS,
    f"INSERT INTO temp.moments {MOMENTS} GROUP BY graph_task, node",
)
"""Statements that keep them as a table, as long as the connection is open."""

FILL_EXECUTED = (
    f"UPDATE graph_task SET executed = (SELECT count(*) FROM temp.moments"  # noqa: S608 - numbers
    f" WHERE graph_task = id AND outcome = {FINISHED}) WHERE executed IS NULL"
)
"""How many nodes were executed of graph tasks that did not finish, once moments are found."""

FILL_NODE_BLOCK = (
    f"INSERT INTO node_block SELECT event.graph_task, event.node, seq / {BLOCK}"  # noqa: S608 - our words
    " FROM event LEFT JOIN temp.moments USING (graph_task, node) WHERE event.node IS NOT NULL"
    f" AND kind NOT IN {(*MOVES, ARRIVED, DELIVERED)}"
    " AND NOT ifnull(seq BETWEEN popped AND ended, 0)"
    f" UNION SELECT event.graph_task, a, seq / {BLOCK} FROM event LEFT JOIN temp.moments"
    " ON moments.graph_task = event.graph_task AND moments.node = a"
    f" WHERE {ARRIVAL} AND a >= 0"
    f" AND NOT ifnull(seq / {BLOCK} BETWEEN ended / {BLOCK} AND ended / {BLOCK} + 1, 0)"
)
"""The rows of node_block, once moments are found."""

SOURCE_LIMIT = 200
"""Longest stored line of source, in characters."""

SOURCE_FILE_LIMIT = 2**18
"""Bytes of the longest stored file of source."""

TEXT_LIMIT = 65_536
"""Longest stored text, in characters."""

CHUNK_BYTES = 2**20
"""Length of a chunk."""

PART_BYTES = 2**24
"""Length of a part of what a graph task has in timeline; one that is read at once need not be
copied together."""

PARTS = 2**16
"""Most parts of a graph task."""
