"""The table of commands: what a key, a line behind ``:``, the palette, the footer and help have.

A command is named here once. Its order in the table is that of the footer, of help and of what
``:`` completes first.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

from textual.binding import Binding

from agviz.tui import analyses
from agviz.tui.arrangement import PANELS
from agviz.tui.command_line import CommandError, Usage, number
from agviz.tui.event_filter import complete_filter, filter_events
from agviz.tui.modes import MODES
from agviz.tui.panels.modules import ModulesPanel
from agviz.tui.panels.source import SourcePanel
from agviz.tui.prompt import COMMAND, SEARCH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from agviz.tui.arrangement import Arrangement
    from agviz.tui.board import Board
    from agviz.tui.drivers import Need, RecordedDriver
    from agviz.tui.live_driver import LiveDriver
    from agviz.tui.modes import Mode
    from agviz.tui.node_search import NodeSearch


class ScreenParts(Protocol):
    """What a command may use: the parts of a screen."""

    board: Board
    arrangement: Arrangement
    driver: RecordedDriver
    node_search: NodeSearch

    @property
    def live(self) -> LiveDriver:
        """The driver, where a program is behind the screen."""

    def explain_keys(self) -> None:
        """Explain the focused panel and its keys."""

    def show_mode(self, mode: Mode) -> None:
        """Show the run, the pass or the source."""

    def offer_tour(self, *, is_asked_for: bool = False) -> None:
        """Have a tour shown."""


@dataclass(frozen=True)
class Keys:
    """The keys of a command."""

    id: str
    """By which users give it others."""
    names: str
    """Textual's, with commas between them."""
    label: str
    """What the footer says."""
    title: str = ""
    """What the palette and the help say; empty: the label."""
    group: Binding.Group | None = None
    """Keys that share a place in the footer."""
    shown: bool = False
    """Whether they are in the footer."""
    priority: bool = False
    """Whether they come before what has the focus."""
    when: Literal["shown", "free", "always"] = "shown"
    """While something is shown and the user does not type; while he does not type; always."""


@dataclass(frozen=True)
class Command:
    """Something that a user can have done, by keys, by a verb behind ``:``, or by both."""

    keys: Keys | None = None
    verb: Usage | None = None
    _: KW_ONLY
    run: Callable[[ScreenParts, str], None]
    """With what was typed behind the verb; empty where a key was pressed."""
    press: Callable[[ScreenParts, str], None] | None = None
    """What keys do; None: the same as the verb without an argument."""
    complete: Callable[[ScreenParts, str], Iterable[str]] | None = None
    """What the argument could become."""
    needs: Need | None = None
    """What has to be there, or else there is no such command."""
    without: str = ""
    """What is said where that is not there; empty: nothing, the keys and the verb do not exist."""

    def is_offered(self, offers: AbstractSet[Need]) -> bool:
        """Whether what it needs is there."""
        return self.needs is None or self.needs in offers

    def bindings(self) -> Iterator[Binding]:
        """Its keys: for where it can be carried out, and for where that can only be said."""
        keys = self.keys
        if keys is None:
            return
        yield Binding(
            keys.names,
            f"command('{keys.id}')",
            keys.label,
            tooltip=keys.title,
            show=keys.shown,
            priority=keys.priority,
            group=keys.group,
            id=keys.id,
        )
        if self.without:
            action, title = f"say_needs('{keys.id}')", f"{keys.title or keys.label} (live)"
            yield Binding(keys.names, action, title, show=False, id=keys.id)

    def carry_out(self, parts: ScreenParts, argument: str) -> None:
        """Do it.

        Raises:
            CommandError: it can't be done; the sentence says why.
        """
        if not self.is_offered(parts.driver.offers):
            raise CommandError(self.without)
        self.run(parts, argument)


def _nodes(parts: ScreenParts, argument: str) -> Iterable[str]:
    return parts.board.shown.recording.columns.places(argument)


def _threads(parts: ScreenParts, argument: str) -> Iterable[str]:
    numbers = map(str, parts.board.shown.threads)
    return [each for each in ("all", *numbers) if each.startswith(argument)]


def _tasks(parts: ScreenParts, argument: str) -> Iterable[str]:
    ids = parts.board.tasks[parts.board.shown.recording.key.file].ids
    return [str(number) for number in ids if str(number).startswith(argument)]


def _themes(parts: ScreenParts, argument: str) -> Iterable[str]:
    return [name for name in parts.board.screen.app.available_themes if name.startswith(argument)]


def _set_theme(parts: ScreenParts, name: str) -> None:
    app = parts.board.screen.app
    if not name:
        app.search_themes()
    elif name in app.available_themes:
        app.theme = name
    else:
        raise CommandError(f"There is no theme {name}; :theme lists them.")


def _toggle_breakpoint(parts: ScreenParts, _: str) -> None:
    focused = parts.arrangement.focused
    parts.live.breakpoints.toggle(focused.place if isinstance(focused, SourcePanel) else "")


def _subject(parts: ScreenParts) -> str:
    """The parameter or module that the cursor is on; empty: another panel has the focus."""
    focused = parts.arrangement.focused
    return focused.subject if isinstance(focused, ModulesPanel) else ""


def _parameter(parts: ScreenParts) -> str:
    """The same, for which a module has one of its parameters."""
    focused = parts.arrangement.focused
    return focused.parameter if isinstance(focused, ModulesPanel) else ""


def _panel(key: int, name: str, needs: Need | None = None) -> Command:
    return Command(
        Keys(f"panel.{name.lower()}", str(key), f"{name} panel"),
        run=lambda parts, _: parts.arrangement.show_panel(name.lower()),
        needs=needs,
    )


def _mode(mode: Mode) -> Command:
    key, text = MODES[mode]
    return Command(
        Keys(f"mode.{mode.lower()}", key, text), run=lambda parts, _: parts.show_mode(mode)
    )


_NODE, _EVENT, _STOP = (Binding.Group(name, compact=True) for name in ("Node", "Event", "Continue"))
_RECORDED: Final = (
    "This is a recording: nothing runs that could stop here. agviz run --live script.py opens the"
    " debugger on a program; u runs to the cursor, c to the next finding."
)
_TENSORS_GONE: Final = (
    "This is a recording: its tensors are gone. agviz run --live script.py opens the debugger on a"
    " program."
)

COMMANDS: Final[tuple[Command, ...]] = (
    # The playhead.
    Command(
        Keys("go.next-node", "n", "Next node", group=_NODE, shown=True),
        Usage("next", "[N]", "go N nodes on (negative: back); at an end, into the next pass"),
        run=lambda parts, argument: parts.driver.node(number(argument)),
    ),
    Command(
        Keys("go.previous-node", "N", "Previous node", group=_NODE, shown=True),
        run=lambda parts, _: parts.driver.node(-1),
    ),
    Command(
        Keys("go.next-event", "s", "Next event", group=_EVENT, shown=True),
        Usage("step", "[N]", "go N events on (negative: back); at an end, into the next pass"),
        run=lambda parts, argument: parts.driver.event(number(argument)),
    ),
    Command(
        Keys("go.previous-event", "S", "Previous event", group=_EVENT, shown=True),
        run=lambda parts, _: parts.driver.event(-1),
    ),
    Command(
        Keys("go.stop", "c", "Next failure or non-finite, or the end", group=_STOP, shown=True),
        Usage(
            "continue", "", "go to the next failure or non-finite gradient of any pass, or the end"
        ),
        run=lambda parts, _: parts.driver.stop(1),
    ),
    Command(
        Keys(
            "go.previous-stop",
            "C",
            "Previous failure or non-finite, or the beginning",
            group=_STOP,
            shown=True,
        ),
        run=lambda parts, _: parts.driver.stop(-1),
    ),
    Command(
        Keys("go.until", "u", "Run to the cursor"),
        Usage(
            "until", "NODE", "go to the moment a node is executed: its number, or part of its name"
        ),
        press=lambda parts, _: parts.driver.until(),
        complete=_nodes,
        run=lambda parts, argument: parts.driver.until_named(argument),
    ),
    Command(
        verb=Usage("event", "N", "go to the moment after event N; 0 is the beginning"),
        run=lambda parts, argument: parts.driver.position(number(argument)),
    ),
    Command(
        verb=Usage("node", "NODE", "look at a node: its number, or part of its name"),
        complete=_nodes,
        run=lambda parts, argument: parts.board.look_at_named(argument),
    ),
    Command(
        Keys("go.nonfinite", "x", "NaN", title="First non-finite", shown=True),
        Usage(
            "nonfinite", "", "go to the first non-finite gradient; again: to that of the next pass"
        ),
        run=lambda parts, _: parts.board.reader.to_nonfinite(),
    ),
    Command(
        Keys("thread.previous", "less_than_sign", "Previous thread"),
        run=lambda parts, _: parts.driver.thread(-1),
    ),
    Command(
        Keys("thread.next", "greater_than_sign", "Next thread"),
        run=lambda parts, _: parts.driver.thread(1),
    ),
    Command(Keys("thread.merge", "m", "All threads"), run=lambda parts, _: parts.driver.merge()),
    Command(
        verb=Usage("thread", "N|all", "go by one thread's nodes only, or by all"),
        complete=_threads,
        run=lambda parts, argument: parts.driver.thread_named(argument),
    ),
    # Searching. With priority, what is typed right behind a key goes to the prompt, however fast.
    Command(
        Keys("search.ask", "slash", "Search", shown=True, priority=True),
        run=lambda parts, _: parts.arrangement.ask(SEARCH),
    ),
    Command(
        Keys("search.next", "full_stop", "Next match"), run=lambda parts, _: parts.node_search.go(1)
    ),
    Command(
        Keys("search.previous", "comma", "Previous match"),
        run=lambda parts, _: parts.node_search.go(-1),
    ),
    Command(
        Keys("search.stop", "escape", "Stop searching"),
        run=lambda parts, _: parts.board.reader.stop_search(),
    ),
    Command(
        Keys("command.ask", "colon", "Command line", priority=True),
        run=lambda parts, _: parts.arrangement.ask(COMMAND),
    ),
    Command(
        Keys("events.filter", "f", "Filter events"),
        Usage(
            "filter",
            "[WORDS]",
            "list only events of kinds (started, hook, NodeFailed …; nonfinite: checks that found"
            " something), a thread (T1) and a node (#12, or . for the selected one); without words"
            " all",
        ),
        press=lambda parts, _: parts.arrangement.ask(COMMAND, "filter "),
        complete=lambda _, argument: complete_filter(argument),
        run=lambda parts, argument: filter_events(parts.board, argument),
    ),
    # The file.
    Command(
        Keys("follow", "F", "Follow a trace that grows"),
        Usage("follow", "", "keep the playhead at the end of a trace that grows"),
        run=lambda parts, _: parts.driver.follow(),
    ),
    Command(
        Keys("reload", "R", "Open the files anew"),
        Usage("reload", "", "open the files anew"),
        run=lambda parts, _: parts.board.reader.reopen(),
    ),
    # Breakpoints.
    Command(
        Keys("break.toggle", "b", "Break", title="Breakpoint here", shown=True),
        Usage(
            "break",
            "[WHERE]",
            "stop there, or before the selected node; when fc.weight.grad.norm() > 1e3: where that"
            " passes the bound; when fc.weight.grad.norm() changes 10x",
        ),
        press=_toggle_breakpoint,
        run=lambda parts, argument: parts.live.breakpoints.add(argument),
        needs="program",
        without=_RECORDED,
    ),
    Command(
        verb=Usage("tbreak", "[WHERE]", "the same, once"),
        run=lambda parts, argument: parts.live.breakpoints.add(argument, temporary=True),
        needs="program",
        without=_RECORDED,
    ),
    Command(
        Keys("break.edit", "B", "Breakpoints", when="free"),
        run=lambda parts, _: parts.live.breakpoints.edit(),
        needs="program",
        without=_RECORDED,
    ),
    Command(
        verb=Usage("condition", "N [CONDITION]", "let breakpoint N ask for more, like norm > 1e3"),
        run=lambda parts, argument: parts.live.breakpoints.condition(argument),
        needs="program",
        without=_RECORDED,
    ),
    Command(
        verb=Usage("ignore", "N COUNT", "let breakpoint N not stop so many times"),
        run=lambda parts, argument: parts.live.breakpoints.ignore(argument),
        needs="program",
        without=_RECORDED,
    ),
    Command(
        verb=Usage("enable", "N", "switch breakpoint N on"),
        run=lambda parts, argument: parts.live.breakpoints.enable(argument, on=True),
        needs="program",
        without=_RECORDED,
    ),
    Command(
        verb=Usage("disable", "N", "switch breakpoint N off"),
        run=lambda parts, argument: parts.live.breakpoints.enable(argument, on=False),
        needs="program",
        without=_RECORDED,
    ),
    Command(
        Keys(
            "shell",
            "exclamation_mark",
            "Python",
            title="Python shell at this node",
            shown=True,
            priority=True,
        ),
        run=lambda parts, _: parts.live.stopped_node.open_shell(),
        needs="program",
        without=_TENSORS_GONE,
    ),
    Command(
        verb=Usage("log", "WHERE TEXT", "print there and do not stop: Addmm norm is {norm}"),
        run=lambda parts, argument: parts.live.breakpoints.add_log(argument),
        needs="program",
        without=_RECORDED,
    ),
    # What is watched.
    Command(
        verb=Usage(
            "watch", "[EXPR]", "show its value at every stop: fc.weight.grad.norm(); or list them"
        ),
        complete=lambda parts, argument: parts.live.watches.complete(argument),
        run=lambda parts, argument: parts.live.watches.add(argument, is_printed=False),
        needs="program",
        without=_RECORDED,
    ),
    Command(
        verb=Usage("unwatch", "[N]", "show the value of expression N no longer, or of none"),
        run=lambda parts, argument: parts.live.watches.remove(argument, is_printed=False),
        needs="program",
    ),
    Command(
        verb=Usage("display", "[EXPR]", "print its value to Output at every stop, or list them"),
        complete=lambda parts, argument: parts.live.watches.complete(argument),
        run=lambda parts, argument: parts.live.watches.add(argument, is_printed=True),
        needs="program",
    ),
    Command(
        verb=Usage("undisplay", "[N]", "print the value of expression N no longer, or of none"),
        run=lambda parts, argument: parts.live.watches.remove(argument, is_printed=True),
        needs="program",
    ),
    # Questions and files for other tools.
    Command(
        Keys("why", "w", "Why", title="Why a gradient is not finite, zero or None", shown=True),
        Usage(
            "why",
            "[NAME]",
            "why a gradient is not finite, or a parameter's or module's zero or None",
        ),
        press=lambda parts, _: analyses.explain_selected(parts.board, _subject(parts)),
        run=lambda parts, argument: analyses.explain(parts.board, argument),
    ),
    Command(
        Keys("flow.show", "L", "Flow", title="Follow the gradient from the loss to this parameter"),
        Usage("flow", "[PARAMETER]", "follow the gradient from the loss to a parameter, or a node"),
        press=lambda parts, _: analyses.follow_selected(parts.board, _parameter(parts)),
        complete=lambda parts, argument: parts.board.shown.recording.columns.parameters(argument),
        run=lambda parts, argument: analyses.follow(parts.board, argument),
    ),
    Command(
        verb=Usage("export", "FORMAT [FILE]", f"write {', '.join(analyses.FORMATS)}"),
        complete=lambda _, argument: analyses.complete_export(argument),
        run=lambda parts, argument: analyses.export(parts.board, argument),
    ),
    # The screen.
    Command(
        Keys("panel.next", "tab", "Next panel"), run=lambda parts, _: parts.arrangement.go_round(1)
    ),
    Command(
        Keys("panel.previous", "shift+tab", "Previous panel"),
        run=lambda parts, _: parts.arrangement.go_round(-1),
    ),
    Command(
        Keys("panel.swap", "v", "Queues, source or modules"),
        run=lambda parts, _: parts.arrangement.swap(),
    ),
    Command(
        Keys("panel.maximise", "z", "Maximise", title="One panel alone, or all again"),
        run=lambda parts, _: parts.arrangement.maximise(),
    ),
    Command(
        Keys("border.left", "ctrl+left,alt+left", "Border to the left"),
        run=lambda parts, _: parts.arrangement.move_border("columns", -2),
    ),
    Command(
        Keys("border.right", "ctrl+right,alt+right", "Border to the right"),
        run=lambda parts, _: parts.arrangement.move_border("columns", 2),
    ),
    Command(
        Keys("border.up", "ctrl+up,alt+up", "Border up"),
        run=lambda parts, _: parts.arrangement.move_border("rows", -1),
    ),
    Command(
        Keys("border.down", "ctrl+down,alt+down", "Border down"),
        run=lambda parts, _: parts.arrangement.move_border("rows", 1),
    ),
    Command(
        verb=Usage("layout", "", "share out the room among the panels as at first"),
        run=lambda parts, _: parts.arrangement.forget_borders(),
    ),
    *(_mode(mode) for mode in MODES),
    Command(
        verb=Usage("edit", "", "open $VISUAL or $EDITOR at the line in Source"),
        run=lambda parts, _: parts.board.screen.query_one(SourcePanel).action_edit(),
    ),
    Command(
        verb=Usage("modules", "", "show the modules of the program, and what happened in each"),
        run=lambda parts, _: parts.arrangement.show_panel(ModulesPanel.HEADING.lower()),
    ),
    *(_panel(place, panel.HEADING) for place, panel in enumerate(PANELS, start=1)),
    Command(
        Keys("run.show", "p", "Passes", "All passes of the run", shown=True),
        Usage("run", "", "list all passes of the run, and what happened in them"),
        run=lambda parts, _: parts.board.show_run(),
    ),
    Command(
        Keys("process.show", "T", "Timeline", "Timeline of the process"),
        Usage("timeline", "", "show all passes, forwards and steps on one axis of time"),
        run=lambda parts, _: parts.board.show_process(),
    ),
    Command(
        Keys("compare.show", "d", "Compare", title="Compare with another pass"),
        Usage("compare", "[FILE] [#PASS]", "hold this pass against another one, node by node"),
        complete=lambda parts, argument: [
            name for name in parts.board.named if name.startswith(argument)
        ],
        press=lambda parts, _: parts.board.compare(),
        run=lambda parts, argument: parts.board.compare_with(argument),
    ),
    Command(
        verb=Usage("task", "N", "open a graph task by its number, reentrant ones included"),
        complete=_tasks,
        run=lambda parts, argument: parts.board.open_task(argument),
    ),
    Command(Keys("copy", "y", "Copy"), run=lambda parts, _: parts.arrangement.copy()),
    Command(verb=Usage("theme", "[NAME]", "change the colours"), complete=_themes, run=_set_theme),
    Command(
        verb=Usage("tour", "", "show what is where on this screen"),
        run=lambda parts, _: parts.offer_tour(is_asked_for=True),
    ),
    Command(
        Keys("help", "question_mark,f1", "Help", shown=True),
        Usage("help", "", "list the commands and keys"),
        run=lambda parts, _: parts.explain_keys(),
    ),
    Command(
        Keys("quit", "q", "Quit", shown=True, when="always"),
        Usage("quit", "", "leave agviz"),
        run=lambda parts, _: parts.driver.quit(),
    ),
    # The node at which a program is stopped.
    Command(
        verb=Usage("tensors", "", "list the tensors at this stop"),
        run=lambda parts, _: parts.live.stopped_node.list_tensors(),
        needs="program",
    ),
    Command(
        verb=Usage("print", "WHAT [NAME] [INDEX]", "show a tensor: input 0 [0:3]"),
        complete=lambda parts, argument: parts.live.stopped_node.complete_tensor(argument),
        run=lambda parts, argument: parts.live.stopped_node.print_tensor(argument),
        needs="program",
    ),
    Command(
        verb=Usage(
            "change", "SLOT HOW VALUE [INDEX]", "change a gradient: 0 multiply 2, 0 set 1 [3]"
        ),
        run=lambda parts, argument: parts.live.stopped_node.change(argument),
        needs="program",
    ),
    Command(
        verb=Usage("undo", "", "take back the last change of a gradient at this stop"),
        run=lambda parts, _: parts.live.stopped_node.undo(),
        needs="program",
    ),
    Command(
        verb=Usage(
            "back",
            "[NODE] [force]",
            "stop again before a node that ran, or the last one, to run on from there"
            " (agviz run --live --back)",
        ),
        run=lambda parts, argument: parts.live.stopped_node.back(argument),
        needs="program",
    ),
    Command(
        verb=Usage("skiphooks", "", "leave out the node's hooks"),
        run=lambda parts, _: parts.live.stopped_node.skip_hooks(),
        needs="program",
    ),
    Command(
        verb=Usage("pick", "NODE", "run a ready node right after this one"),
        run=lambda parts, argument: parts.live.stopped_node.pick(argument),
        needs="program",
    ),
    Command(
        verb=Usage("python", "LINE", "run a line of Python at this node"),
        run=lambda parts, argument: parts.live.stopped_node.run_line(argument),
        needs="program",
    ),
    Command(
        verb=Usage("breakpoints", "", "list and edit breakpoints"),
        run=lambda parts, _: parts.live.breakpoints.edit(),
        needs="program",
    ),
    Command(
        verb=Usage("delete", "N", "remove breakpoint N"),
        run=lambda parts, argument: parts.live.breakpoints.delete(argument),
        needs="program",
    ),
    Command(
        verb=Usage(
            "stops", "[exceptions|nonfinite|first WHAT]", "where else to stop: on, off, every"
        ),
        run=lambda parts, argument: parts.live.breakpoints.set_stops(argument),
        needs="program",
    ),
    # A program that runs.
    Command(
        verb=Usage("hold", "all|one", "whether a stop holds all threads or its own"),
        run=lambda parts, argument: parts.live.hold(argument),
        needs="program",
    ),
    Command(
        Keys("live.hook", "o", "Hook", title="Step over a hook"),
        Usage("hook", "", "run past the node's next hook"),
        run=lambda parts, _: parts.live.hook(),
        needs="program",
    ),
    Command(
        Keys("live.pause", "ctrl+c", "Pause", shown=True, priority=True, when="free"),
        Usage("pause", "", "stop at the next event"),
        run=lambda parts, _: parts.live.pause(),
        needs="program",
    ),
    Command(
        verb=Usage("now", "", "go to the moment at which the program is"),
        run=lambda parts, _: parts.live.now(),
        needs="program",
    ),
    _panel(len(PANELS) + 1, "Output", "program"),
    Command(
        Keys("suspend", "ctrl+z", "Suspend", when="always"),
        run=lambda parts, _: parts.board.screen.app.action_suspend_process(),
        needs="program",
    ),
    Command(
        Keys("rank.leave", "backspace", "All ranks", shown=True, when="free"),
        run=lambda parts, _: parts.driver.leave_rank(),
        needs="ranks",
    ),
)

BY_ID: Final[Mapping[str, Command]] = {
    command.keys.id: command for command in COMMANDS if command.keys is not None
}
BINDINGS: Final = [binding for command in COMMANDS for binding in command.bindings()]


def verbs(offers: AbstractSet[Need]) -> dict[str, Command]:
    """The commands that can be typed, where something is offered, by verb."""
    return {
        command.verb.name: command
        for command in COMMANDS
        if command.verb is not None and (command.without or command.is_offered(offers))
    }


def usages(offers: AbstractSet[Need]) -> list[Usage]:
    """How they are written."""
    about = "about a program that runs: agviz run --live"
    return [
        command.verb if command.is_offered(offers) else Usage(verb, "[WHAT]", about)
        for verb, command in verbs(offers).items()
        if command.verb is not None
    ]
