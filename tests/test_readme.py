"What the README promises about the command is what the command says of itself."
import inspect, re, resource, subprocess, sys
from pathlib import Path
from fastcore.docments import docments
from ramabana_acp import cli

root = Path(__file__).parents[1]
readme = (root/'README.md').read_text(encoding='utf-8')
EXE = str(Path(sys.executable).with_name('ramabana-acp'))

def sh(*args): return subprocess.run([EXE, *args], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)

def section(name): return re.split(r'^#+ ', readme.split(f'{name}\n', 1)[1], flags=re.M)[0]

def test_the_options_are_those_of_help():
    rows = [re.split(r'(?<!\\)\|', l) for l in section('### Options').splitlines() if l.startswith('| `--')]
    told = {r[1].strip(' `-'):r[3].strip().replace('\\|', '|') for r in rows}
    flag = lambda p: ('no-' if p.default is True else '')+p.name.replace('_', '-')
    docs = docments(cli.main.__wrapped__, returns=False)
    assert told=={flag(p):('do not ' if p.default is True else '')+docs[p.name] for p in inspect.signature(cli.main).parameters.values()}
    h = ' '.join(sh('--help').stdout.split())
    assert not [k for k,v in told.items() if f'--{k}' not in h or ' '.join(v.split()) not in h]

def cpu(*args):
    "Seconds of processor time that the command takes: what it takes by the clock on a machine that does nothing else"
    was = resource.getrusage(resource.RUSAGE_CHILDREN)
    r = sh(*args)
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert r.returncode==0 and 'ramabana-acp' in r.stdout
    return now.ru_utime-was.ru_utime+now.ru_stime-was.ru_stime

def test_help_and_version_come_at_once():
    for arg in ('--help','--version'): assert min(cpu(arg) for _ in range(5))<=.25

def test_every_command_has_help():
    for c in ('ask','demo'):
        r = sh(c, '--help')
        assert r.returncode==0 and f'usage: ramabana-acp {c}' in r.stdout

def test_a_vault_and_pii_are_refused_in_a_sentence():
    for args in (['--vault'], ['--pii','redact'], ['--pii','refuse'], ['--pii','bogus']):
        r = sh(*args)
        assert (r.returncode, r.stdout, len(r.stderr.strip().splitlines()))==(2, '', 1), r.stderr

def test_two_commands_set_it_up():
    assert re.findall(r'^pip install .*$', readme, re.M)==['pip install . && ramabana-acp demo', "pip install -e '.[dev]' && pytest"]

def test_the_snippet_for_zed_is_json():
    import json
    o = json.loads(re.search(r'```json\n(.*?)```', readme, re.S)[1])
    assert o['agent_servers']['Ramabana']['type']=='custom'
