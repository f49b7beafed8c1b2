"What the README promises about the command is what the command says of itself."
import inspect, re, resource, subprocess, sys
from pathlib import Path
from fastcore.docments import docments
from ramabana_acp import cli
from ramabana_acp.entry import COMMANDS

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
    for arg in ('--help','--version'): assert min(cpu(arg) for _ in range(5))<1   # the benchmark holds them to a quarter of a second

def test_every_command_has_help():
    for c in COMMANDS:
        r = sh(c, '--help')
        assert r.returncode==0 and f'usage: ramabana-acp {c}' in r.stdout

def test_every_command_is_in_help_and_here():
    h = sh('--help').stdout
    for c in COMMANDS: assert f'ramabana-acp {c}' in h and f'ramabana-acp {c}' in readme

def test_the_options_of_setup_that_are_told_exist():
    h = sh('setup','--help').stdout
    told = {o for l in re.findall(r'^ramabana-acp setup .*$', readme, re.M) for o in re.findall('--[a-z-]+', l)}
    assert told and not [o for o in told if o not in h]

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

def test_what_doctor_prints_has_the_shapes_of_the_editors_page():
    import json
    from ramabana_acp.doctor import snippets
    page = ' '.join((root/'nbs/editors.ipynb').read_text(encoding='utf-8').replace('\\"', '"').split())
    s = snippets('ramabana-acp')
    assert s['Neovim, the adapter of CodeCompanion'] in page
    assert 'ramabana = { command = "ramabana-acp", args = {}, env = {} }' in s['Neovim, avante'] and 'ramabana = { command = "ramabana-acp", args = {}, env = {} }' in page
    assert '(agent-shell--make-acp-client :command "ramabana-acp" :command-params' in s['Emacs, agent-shell'] and '(agent-shell--make-acp-client :command "ramabana-acp" :command-params' in page
    for k in ('Zed, settings.json','JetBrains, ~/.jetbrains/acp.json'):
        o = json.loads(s[k] if s[k][0]=='{' else f'{{{s[k]}}}')
        assert o['agent_servers']['Ramabana']['command']=='ramabana-acp'
