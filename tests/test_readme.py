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
    bare = lambda s: ' '.join(s.replace('`', '').split()) # a page that sets type makes a dash of two hyphens that are no code
    told = {r[1].strip(' `-'):bare(r[3].replace('\\|', '|')) for r in rows}
    flag = lambda p: ('no-' if p.default is True else '')+p.name.replace('_', '-')
    docs = docments(cli.main.__wrapped__, returns=False)
    assert told=={flag(p):('do not ' if p.default is True else '')+bare(docs[p.name]) for p in inspect.signature(cli.main).parameters.values()}
    h = bare(sh('--help').stdout)
    assert not [k for k,v in told.items() if f'--{k}' not in h or v not in h]

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

def test_what_doctor_prints_is_what_the_editors_page_says():
    import json
    from ramabana_acp.doctor import snippets
    from fastcore.nbio import read_nb
    page = [b for c in read_nb(root/'nbs/editors.ipynb').cells for b in re.findall(r'```(\w+)\n(.*?)\n```', c.source, re.S)]
    s = snippets('/path/to/ramabana-acp')
    assert [b for lang,b in page if lang in ('lua','elisp')]==[s[k] for k in ('Neovim, CodeCompanion','Neovim, avante','Emacs, agent-shell')]
    assert [json.loads(b) for lang,b in page if lang=='json']==[json.loads(f"{{{s['Zed, settings.json']}}}"), json.loads(s['JetBrains, ~/.jetbrains/acp.json'])]

def test_what_is_written_in_python_runs(tmp_path):
    ask,test = re.findall(r'```python\n(.*?)```', section('## From Python'), re.S)
    (tmp_path/'a.py').touch()
    r = subprocess.run([sys.executable,'-W','error::DeprecationWarning:__main__','-c',ask], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (r.returncode, r.stderr)==(0, '') and 'a.py' in r.stdout, r.stderr
    (tmp_path/'test_mine.py').write_text(test)
    r = subprocess.run([sys.executable,'-m','pytest','-q','test_mine.py'], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert r.returncode==0 and '1 passed' in r.stdout, r.stdout

def test_every_link_leads_to_a_file():
    ls = [l.split('#')[0] for l in re.findall(r'\]\((?!https?:)([^)]+)\)', readme)]
    assert len(ls)>9 and [l for l in ls if not (root/l).exists()]==[]
