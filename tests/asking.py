"""One question put to a model server in each dialect: what the tests of models stand on.

`from asking import *` also makes the pauses between two attempts short in the module that does it.
"""
import json
import pytest
from ramabana_acp.models.messages import user
from ramabana_acp.models.provider import mk_provider
from ramabana_acp.models.specs import ModelSpec

APIS = dict(chat='openai', messages='anthropic', responses='responses')
each = pytest.mark.parametrize('dialect', APIS)
hi = [user('hi')]
LS = dict(name='ls', description='List', input_schema=dict(type='object', properties=dict(path=dict(type='string'))))
dumps = lambda o: json.dumps(o, separators=(',',':'))

@pytest.fixture(autouse=True)
def no_long_pauses(monkeypatch):
    "What the server asks for is waited, what we would wait by ourselves is not"
    monkeypatch.setattr('ramabana_acp.models.provider.pause', lambda n, after=None: .01 if after is None else after)

def provider(m, dialect='chat', id='m', **kw):
    "The provider that asks model `id` of server `m`, a `FakeModel` or an address"
    return mk_provider(ModelSpec(f'fake/{id}', 'fake', id, base_url=m if isinstance(m, str) else m.base, api=APIS[dialect], **kw))

def ask(p, history=hi, shown=None, **kw):
    "The message that answers `history`; what is shown on the way is added to `shown`"
    for ev in p.stream(history, **kw):
        if shown is not None: shown.append(ev)
    assert ev[0]=='done'
    return ev[1]

def chunk(fin=None, **d): return dict(id='c1', object='chat.completion.chunk', created=1, model='m', choices=[dict(index=0, delta=d, finish_reason=fin)])
