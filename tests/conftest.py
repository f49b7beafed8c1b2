"A skip that is not in `expected_skips.txt` fails the run: a test that does not run proves nothing, and nobody reads a list of skips."
import asyncio, atexit, os, shutil, sys, tempfile
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from unittest.mock import patch
import pytest
from hypothesis import settings

# nothing that a test starts may touch the homes of the person who runs it
_home = tempfile.mkdtemp(prefix='ramabana-tests-')
atexit.register(shutil.rmtree, _home, ignore_errors=True)
os.environ.update(XDG_CONFIG_HOME=f'{_home}/config', XDG_STATE_HOME=f'{_home}/state')
# With this set, every process that a test starts compiles the whole package again. And nobody who uses the program has it set:
# what goes wrong with stored bytecode (it is known by size and whole second of its source alone) would go wrong for them only.
os.environ.pop('PYTHONDONTWRITEBYTECODE', None)

# A property is tried with the same examples in each run: a run that fails by chance stops everybody, and what it found is not seen again.
# `EXPLORE=1 pytest …` tries others.
settings.register_profile('same', derandomize='EXPLORE' not in os.environ, database=None, deadline=None, print_blob=True)
settings.load_profile('same')

@pytest.fixture(scope='session', autouse=True)
def certificates_are_read_once():
    "Each model server of a test has a client of its own, which would read all certificates of the system again: most of what such a test costs"
    import httpcore2
    with patch.object(httpcore2, 'default_ssl_context', cache(httpcore2.default_ssl_context)): yield

@pytest.fixture(autouse=True)
def connections_are_closed():
    "A client keeps its connections as long as the process lives, and the hundreds of servers that tests ask are more than a process may have files"
    yield
    sse = sys.modules.get('ramabana_acp.models.sse')
    if not sse or len(sse._clients)<40: return
    from ramabana_acp.models.provider import provider_loop
    with sse._making: cs = [sse._clients.popitem()[1] for _ in range(len(sse._clients))]
    async def close():
        for c in cs: await c.close()
    asyncio.run_coroutine_threadsafe(close(), provider_loop()).result(20)

_skipped = []

def expected():
    "(test id pattern, where or why it may skip) of each line of `expected_skips.txt`"
    ls = (Path(__file__).parent/'expected_skips.txt').read_text(encoding='utf-8').splitlines()
    return [tuple(map(str.strip, l.split('|', 1))) for l in ls if l.strip() and not l.startswith('#')]

def pytest_runtest_logreport(report):
    if report.skipped and not hasattr(report, 'wasxfail'): _skipped.append((report.nodeid, str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)))

def pytest_collectreport(report):
    if report.skipped: _skipped.append((report.nodeid, str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)))

def pytest_sessionfinish(session):
    "Fail the run on a skip that nobody expected; under xdist the reports of all workers arrive at the controller"
    if hasattr(session.config, 'workerinput'): return
    pats = expected()
    bad = [(n,w) for n,w in _skipped if not any(fnmatch(n, p) and reason in w for p,reason in pats)]
    if not bad: return
    out = session.config.pluginmanager.get_plugin('terminalreporter')
    for n,w in bad: out.write_line(f'\nunexpected skip: {n}: {w} (tests/expected_skips.txt lists what may skip)', red=True)
    session.exitstatus = 1
