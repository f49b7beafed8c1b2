"The site is a book: the code stands in it, in its order, and a link leads to what it names."
import importlib.util
from pathlib import Path
import pytest
from fastcore.nbio import mk_cell, new_nb

@pytest.fixture(scope='module')
def docs():
    spec = importlib.util.spec_from_file_location('docs', Path(__file__).parents[1]/'tools/docs.py')
    m = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(m)
    return m

SRC = '#| export\nclass A: pass\n\n@patch(as_prop=True)\ndef f(self:A): pass\n\ndef g(): pass'

def test_what_a_page_calls_the_definitions_of_a_cell(docs): assert docs.names(SRC)==['A', 'A.f', 'g']

def test_code_stands_below_its_signatures_in_its_order(docs):
    cell = lambda id, s, kind='code': mk_cell(s, kind, id=id)
    old = [cell('why', 'Why', 'markdown'), cell('imports', '#| export\nimport os\nfrom re import sub'), cell('t', '#| export\nTABLE = 1'), cell('d', SRC), cell('lesson', 'g()'),
        cell('out', '#| hide\nx')]
    nb = new_nb([cell('front', 'title', 'raw'), old[0], *(cell(f'z{n}', f'#| echo: false\nshow_doc({n})') for n in ('g','A.f','A')), old[4]])
    docs.whole(nb, new_nb(old))
    assert [c.source.splitlines()[-1] if c.cell_type=='code' else c.source.partition('\n')[0] for c in nb.cells]==[
        'title', 'Why', '```python', 'show_doc(A)', 'show_doc(A.f)', 'show_doc(g)', '<details class="source"><summary>Code</summary>', 'g()']
    assert docs.code('x = "```"', False).source=='````python\nx = "```"\n````'
    assert nb.cells[2].source=='```python\nTABLE = 1\n```' and 'class A: pass' in nb.cells[6].source and '#|' not in nb.cells[6].source

@pytest.mark.parametrize('prose,name,to,now', [
    (True, 'Err', 'core.html#err', '[`Err`](../core.html#err)'), (False, 'text_of', 'models/messages.html#text_of', '[`text_of`](messages.html#text_of)'),
    (True, 'text', 'core.html#text', '`text`'), (False, 'here', 'models/page.html#here', '`here`'), (True, 'here', 'models/page.html#here', '[`here`](#here)'),
    (True, 'Gone', 'core.html#gone', '`Gone`')])
def test_a_link_is_relative_and_leads_somewhere(docs, prose, name, to, now):
    have = {'core.html':{'','err','text'}, 'models/messages.html':{'','text_of'}, 'models/page.html':{'','here'}}
    url = docs.cfg.doc_host+docs.cfg.doc_baseurl
    assert docs.relink(f'a [`{name}`]({url}/{to}) b', 'models/page.html', prose, have)==f'a {now} b'
