"""The entry points: `equipoise`, and `kubectl equipoise` with its completion, as a plugin of kubectl.

Every failure of a command is one line and an exit status.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

INTERRUPTED = 130
"""The exit status after Ctrl-C."""
COMPLETE = "__complete"
"""The first word with which the shells' completions call this program."""


def main(called: str = "equipoise") -> None:
    """Run the command line; every failure is one line and one of two exit statuses.

    `called` is how a person calls it, and how what they read calls it too.
    """
    arguments = sys.argv[1:]
    if arguments[:1] == [COMPLETE]:
        _complete(arguments[1:])
        return
    with _ended_by_ctrl_c():
        from equipoise.cli import commands
        from equipoise.runtime.output import print_anywhere

        print_anywhere()
    is_debug = "--debug" in arguments
    if is_debug:
        arguments.remove("--debug")
    try:
        status = commands.app(args=arguments, prog_name=called, standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except SystemExit as ended:
        # The parser exits so, with 1 and without a message, on a broken pipe.
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        status = _explain(ended.__context__, called)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - every failure becomes one line
        if is_debug and not _is_help(error):
            with suppress(OSError):
                import traceback

                from equipoise.runtime.output import plain

                message = _without_secrets(error, "".join(traceback.format_exception(error)))
                print(plain(message), file=sys.stderr, end="")
        status = _explain(error, called, is_debug=is_debug)
    sys.exit(status if isinstance(status, int) else 0)


@contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the process silently during imports, which cannot be interrupted cleanly."""
    before = signal.getsignal(signal.SIGINT)
    is_ours = threading.current_thread() is threading.main_thread() and before is signal.default_int_handler
    if not is_ours:  # it is ignored, or handled elsewhere
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _is_help(error: BaseException) -> bool:
    return type(error).__name__ == "NoArgsIsHelpError"


def _explain(error: BaseException, called: str, *, is_debug: bool = False) -> int:
    import typer

    from equipoise.core.errors import EquipoiseError
    from equipoise.runtime.output import tell

    match error:
        case EquipoiseError():
            text = str(error).replace("`equipoise ", f"`{called} ")
            tell(f"error: {text}")
            return error.exit_status
        case typer.TyperException():
            if _is_help(error):
                print(error.format_message())
                return 0
            # `Value error` is pydantic's own prefix.
            text = error.format_message().replace(": Value error, ", ": ", 1)
            tell(f"error: {_without_secrets(error, text)}")
            return 2
        case typer.Abort() | KeyboardInterrupt():
            return INTERRUPTED
        case BrokenPipeError():
            # The pipe is closed (`| head`); flushing the buffer at exit must not fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        case OSError():
            tell(f"error: {error.filename or 'standard output'}: {error.strerror or error}")
            return 1
        case _:
            more = "" if is_debug else " (run again with --debug for the traceback)"
            tell(f"error: unexpected {type(error).__name__}: {error}{more}")
            return 1


def _without_secrets(error: BaseException, text: str) -> str:
    """Return a text without passwords in URLs; the parser's errors repeat the arguments."""
    import typer

    from equipoise.adapters.urls import shown_in, without_users

    return shown_in(text) if isinstance(error, typer.TyperException) else without_users(text)


def kubectl() -> None:
    """Run the command line under the name by which kubectl calls it."""
    main("kubectl equipoise")


def complete() -> None:
    """Print the completions for kubectl: one candidate per line, then the directive."""
    _complete(sys.argv[1:])


def _complete(words: list[str]) -> None:
    from equipoise.cli.completion import print_candidates

    print_candidates(words)
