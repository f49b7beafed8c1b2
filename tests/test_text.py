"An edit changes only the bytes of its span."
import re
import pytest
from hypothesis import assume, example, strategies as st
from width import wide
from ramabana_acp.core import ToolError
from ramabana_acp.workspace.text import Binary, decode, edit, encode, line_at, line_end, n_lines, numbered, split_lines, splice, unified

BOMS = {'utf-8':b'', 'utf-8-sig':b'\xef\xbb\xbf', 'utf-16-le':b'\xff\xfe', 'utf-16-be':b'\xfe\xff', 'utf-32-le':b'\xff\xfe\0\0', 'utf-32-be':b'\0\0\xfe\xff', 'latin-1':b''}
ends = st.sampled_from(['\n','\r\n','\r'])
chars = st.characters(codec='utf-8', exclude_characters='\0')
latin = st.characters(min_codepoint=32, max_codepoint=255, exclude_characters='\x7f')

@st.composite
def files(draw):
    "(bytes, text, BOM, codec) of a file with mixed or uniform line ends, with or without a final one, in any encoding"
    enc = draw(st.sampled_from(list(BOMS)))
    line = st.text(latin if enc=='latin-1' else chars, max_size=12)
    uniform = draw(st.none()|ends)
    text = ''.join(draw(line)+(uniform or draw(ends)) for _ in range(draw(st.integers(0, 6))))+draw(line)
    codec = 'utf-8' if enc=='utf-8-sig' else enc
    return BOMS[enc]+text.encode(codec), text, BOMS[enc], codec

@wide(100, 2000, files())
def test_decode_and_encode_give_the_same_bytes(f):
    raw = f[0]
    try: t = decode(raw)
    except Binary: return assume(False)
    assert encode(t.text, t)==raw

@wide(200, 5000, st.binary(max_size=60))
@example(b'\xff\xfe\0\0')
@example(b'\xef\xbb\xbf\xff')
@example(b'\xff\xfea')
def test_any_bytes_are_refused_or_survive(raw):
    try: t = decode(raw)
    except Binary: return
    assert encode(t.text, t)==raw and '\0' not in t.text

@wide(80, 2000, files(), st.data(), st.booleans())
def test_an_edit_changes_only_the_bytes_of_its_span(f, data, lf):
    "Any unique piece, with the file's line ends or the model's LF, replaced by anything"
    try: t = decode(f[0])
    except Binary: return assume(False)
    assume(t.text)
    bom,codec,text = t.bom,t.enc,t.text
    a = data.draw(st.integers(0, len(text)-1)); b = data.draw(st.integers(a+1, len(text)))
    assume('\r\n' not in (text[a-1:a+1], text[b-1:b+1]))
    old = text[a:b] if not lf else re.sub('\r\n|\r', '\n', text[a:b])
    new = data.draw(st.text(st.characters(min_codepoint=32, max_codepoint=126)|st.sampled_from('\n'), max_size=12))
    try: res,spans = edit(text, [(old,new)])
    except ToolError as e:
        assert re.search('found|changes nothing', str(e))
        return
    out = encode(res, t)
    (s,) = spans
    assert s.how=='exact' and (s.start,s.end)==(a,b)
    head,tail = bom+text[:s.start].encode(codec), text[s.end:].encode(codec)
    assert out.startswith(head) and out.endswith(tail) and len(out)==len(head)+len(tail)+len(s.new.encode(codec))
    if line_end(text) and not re.sub('\r\n|\r', '\n', old)==new: assert line_end(s.new) in (line_end(text), '')

@wide(80, 1000, files(), st.data())
def test_tolerant_edits_leave_everything_outside_their_span(f, data):
    "Lines with their trailing space gone or an indentation too much"
    text = f[1]
    ls = split_lines(text)
    assume(ls)
    i = data.draw(st.integers(0, len(ls)-1)); j = data.draw(st.integers(i+1, len(ls)))
    old = '\n'.join(data.draw(st.sampled_from(['', '  ', '\t']))*bool(l.strip())+l.rstrip() for l in ls[i:j])
    try: res,spans = edit(text, [(old, old+'!')])
    except ToolError: return
    (s,) = spans
    assert res==text[:s.start]+s.new+text[s.end:] and s.new.rstrip().endswith('!')
    if s.how!='exact': assert re.sub(r'\s+', '', s.new)==re.sub(r'\s+', '', text[s.start:s.end])+'!'

@wide(80, 1000, st.lists(st.text('ab \t', max_size=4), min_size=1, max_size=6), st.data())
def test_lines_that_old_and_new_share_stay_the_files_own(ls, data):
    "Only the changed line of a loosely matched block differs from the file"
    es = [data.draw(ends) for _ in ls]
    text = ''.join(l+e for l,e in zip(ls, es))
    k = data.draw(st.integers(0, len(ls)-1))
    old = [l.rstrip() for l in ls]
    new = old[:k]+['ZZ']+old[k+1:]
    try: res,(s,) = edit(text, [('\n'.join(old)+'\n', '\n'.join(new)+'\n')])
    except ToolError: return
    assert res.count('ZZ')==1
    if n_lines(text)==len(ls) and len(split_lines(res))==len(ls):
        now = split_lines(res, True)
        same = [a==b for a,b in zip(now, split_lines(text, True))]
        assert same.count(False)==1 or len(set(old))<len(old), (text, res)

@wide(80, 1000, st.text(st.sampled_from('a\r\n\f\u2028'), max_size=30))
def test_line_numbers_agree_with_each_other(text):
    ls = split_lines(text, True)
    assert ''.join(ls)==text and len(ls)==n_lines(text)==len(split_lines(text))
    pos = 0
    for i,l in enumerate(ls, 1):
        assert line_at(text, pos)==line_at(text, pos+len(l)-1)==i
        pos += len(l)
    assert [r.split('\t')[0].strip() for r in re.split('\n(?=[ \\d]+\t)', numbered(text))]==[str(i) for i in range(1, len(ls)+1)] or not text

CASES = { # id: (bytes, edits, bytes after)
    'C079 CRLF': (b'def a():\r\n    return 1\r\n\r\ndef b():\r\n    return 2\r\n', [('def a():\n    return 1\n','def a():\n    x = 1\n    return x\n')], b'def a():\r\n    x = 1\r\n    return x\r\n\r\ndef b():\r\n    return 2\r\n'),
    'C079 CRLF from the model': (b'def a():\r\n    return 1\r\n', [('def a():\r\n    return 1\r\n','def a():\r\n    x = 1\r\n    return x\r\n')], b'def a():\r\n    x = 1\r\n    return x\r\n'),
    'C079 CRLF from the model, LF file': (b'a\nb\n', [('a\r\nb\r\n','a\r\nc\r\n')], b'a\nc\n'),
    'C080 mixed': (b'a\r\nb\nc\r\nd', [('c','C')], b'a\r\nb\nC\r\nd'),
    'C080 mixed, many lines': (b'a\r\nb\nc\r\nd', [('a\nb\nc','a\nb\nX\nc')], b'a\r\nb\nX\nc\r\nd'),
    'C082 Latin-1': (b'n\xe4me=1\nx=2\n', [('x=2','x=3')], b'n\xe4me=1\nx=3\n'),
    'C083 UTF-16': (b'\xff\xfea\0=\0001\0\r\0\n\0', [('a=1','a=2')], b'\xff\xfea\0=\0002\0\r\0\n\0'),
    'C085 literal': (b're.match(r"a.*(b|c)[0-9]+$", s)\nre.match("aXXb1", s)\n', [('a.*(b|c)[0-9]+$','Z')], b're.match(r"Z", s)\nre.match("aXXb1", s)\n'),
    'C085 literal new': (b'x', [('x', r'\1\g<0>\n')], rb'\1\g<0>\n'),
    'UTF-8 BOM': (b'\xef\xbb\xbfa\r\nb', [('a','A')], b'\xef\xbb\xbfA\r\nb'),
    'CR': (b'a\rb\rc', [('b\n','B\nB2\n')], b'a\rB\rB2\rc'),
    'only the break': (b'a\r\nb', [('\nb','\nc')], b'a\r\nc'),
    'a break removed': (b'a\r\nb\r\nc', [('\nb','')], b'a\r\nc'),
    'no final newline': (b'a\nb', [('b\n','c\n')], b'a\nc'),
    'final newline given up': (b'a\nb\n', [('b\n','b')], b'a\nb'),
    'delete a line': (b'a\r\nb\r\nc\r\n', [('b\n','')], b'a\r\nc\r\n'),
    'nothing is left': (b'a\n', [('a\n','')], b''),
    'trailing space': (b'x = 1  \r\ny = 2\r\n', [('x = 1\ny = 2','x = 1\ny = 3')], b'x = 1  \r\ny = 3\r\n'),
    'indented as a whole': (b'class A:\n    def f(self):\n        return 1\n', [('def f(self):\n    return 1','def f(self):\n    if 1:\n        return 2')], b'class A:\n    def f(self):\n        if 1:\n            return 2\n'),
    'indented too much': (b'def f():\n    return 1\n', [('    def f():\n        return 1','    def f():\n        return 2')], b'def f():\n    return 2\n'),
    'tabs all through': (b'\tif x:\n\t\ty()\n', [('if x:\n\ty()','if x:\n\tz()')], b'\tif x:\n\t\tz()\n'),
    'the line end of the last line is that before it': (b'a\r\nb', [('b','b\nc')], b'a\r\nb\r\nc'),
    'line ends are what the edit is about': (b'a\r\nb\r\n', [('a\r\n','a\n')], b'a\nb\r\n'),
    'CR in old is meant': (b'a\nb a\r\nb', [('a\r\nb','X')], b'a\nb X'),
    'a lone CR in new is content': (b'p\r50%\n', [('50%','50%\r99%')], b'p\r50%\r99%\n'),
    'Windows-1252': (b'\x80 1', [('\u20ac 1','\u20ac 2 \u2026')], b'\x80 2 \x85'),
    'form feed': (b'a\x0cb\xe2\x80\xa8c\n', [('b','B')], b'a\x0cB\xe2\x80\xa8c\n'),
}

@pytest.mark.parametrize('name', CASES)
def test_bytes(name):
    raw,edits,want = CASES[name]
    t = decode(raw)
    assert encode(edit(t.text, edits)[0], t)==want

ERRORS = { # id: (text, edits, all, what the message says)
    'C086 empty old': ('abc', [('','X')], True, 'must not be empty'),
    'C086 empty file': ('', [('','X')], False, 'must not be empty'),
    'C088 inner space': ('def foo():\n    x = 1\n    y = 2  \n', [('    x  =  1','    x = 100')], False, 'differs in white space.*2\t    x = 1'),
    'C089 tabs': ('func a() {\n\tif x {\n\t\ty()\n\t}\n}\n', [('    if x {\n        y()\n    }','z')], False, 'tabs'),
    'C089 tabs over an unindented old': ('\tif x:\n\t\ty()\n', [('if x:  \n\ty()','if x:\n    z()')], False, 'tabs or depth'),
    'C097 two places': ('KEY=1\n'+'x\n'*3+'KEY=1', [('KEY=1','KEY=2')], False, r'found 2 times \(lines 1, 5\)'),
    'overlapping places': ('aaa', [('aa','b')], False, 'found 2 times'),
    'two places but for space': ('a \nb\n  \na\nb \n', [('a\nb\n','X')], True, 'found 2 times but for white space'),
    'no-op': ('a', [('a','a')], False, 'changes nothing'),
    'no-op after fitting': ('a\r\nb', [('a\nb','a\r\nb')], False, 'changes nothing'),
    'second of two': ('a\nb\n', [('a','A'),('x','y')], False, 'edit 2 of 2: .*Nothing was changed'),
    'overlap': ('abc', [('ab','x'),('bc','y')], False, 'overlap at line 1'),
    'the same place twice': ('abc', [('b','x'),('b','y')], False, 'overlap'),
    'line numbers': ('a\nb\n', [('1\ta\n2\tb','c')], False, 'holds line numbers'),
    'quotes': ('say \u201chi\u201d', [('"hi"','x')], False, 'look-alike'),
    'already done': ('a\nnew text\n', [('old text','new text')], False, 'already there, at line 2'),
    'nothing like it': ('a\nb\n', [('zzzzzz','y')], False, 'read the file again'),
    'empty file': ('', [('zzzzzz','y')], False, r'\(0 lines\)'),
    'only blank lines': ('a\n', [('\n\n\n','y')], False, 'not in the file'),
}

@pytest.mark.parametrize('name', ERRORS)
def test_errors_say_what_helps(name):
    text,edits,all_,msg = ERRORS[name]
    with pytest.raises(ToolError) as e: edit(text, edits, all_)
    assert re.search(msg, str(e.value), re.S), str(e.value)

def test_replace_all_changes_every_place_and_nothing_else():
    text = 'K=1\r\nx K=1\n'*50
    res,spans = edit(text, [('K=1','K=22')], all=True)
    assert res==text.replace('K=1','K=22') and len(spans)==100 and splice(text, spans)==res

def test_replace_all_passes_over_overlaps():
    assert edit('aaaaa', [('aa','b')], all=True)[0]=='bba'

def test_what_the_encoding_cannot_hold_is_an_error():
    with pytest.raises(ToolError, match=r'cp1252.*U\+2192, line 2'): encode('a\n\u2192', decode(b'caf\xe9'))

def test_a_diff_of_line_ends_and_of_the_final_newline_can_be_read():
    assert unified('f', 'a\r\nb\r\n', 'a\r\nc\r\n').splitlines()[2:]==['@@ -1,2 +1,2 @@', ' a', '-b', '+c']
    assert '\\ No newline' in unified('f', 'a\n', 'a') and unified('f', None, 'a\n').startswith('--- /dev/null')

@wide(50, 1000, st.lists(st.sampled_from('abc'), max_size=20), st.lists(st.sampled_from('abc'), max_size=20), st.integers(0, 3))
def test_a_diff_is_a_patch(a, b, n):
    "Applying the hunks at their line numbers to the one text gives the other"
    a,b = (['x']*9+l+['y']*9 if n%2 else l for l in (a,b))
    out,i = [],0
    for hunk in re.split('^@@ ', unified('f', ''.join(l+'\n' for l in a), ''.join(l+'\n' for l in b), n), flags=re.M)[1:]:
        head,*ls = hunk.splitlines()
        old,k,new,m = (int(x or 1) for x in re.match(r'-(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))?', head).groups())
        out,i = out+a[i:old-bool(k)],old-bool(k)
        assert len(out)==new-bool(m)
        for l in ls:
            if l[0]!='+': assert a[i]==l[1:]; i += 1
            if l[0]!='-': out.append(l[1:])
    assert out+a[i:]==b

@pytest.mark.parametrize('n', [50_000])
def test_a_large_file_does_not_hold_up_a_turn(n):
    import time
    text = ''.join(f'line {i} of a long file\n' for i in range(n))
    t0 = time.process_time()
    new,_ = edit(text, [(f'line {n-1} of','line X of')])
    assert unified('f', text, new).count('\n')==8
    with pytest.raises(ToolError): edit(text, [('line 7777 of one\nshort file','x')])
    with pytest.raises(ToolError): edit(text, [('line','x')])
    assert time.process_time()-t0<20
