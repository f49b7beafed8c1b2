"""`AcpAgent` under the ACP library alone, without our wire."""
import json, sys
from ramabana_acp.testing.editor import EditorClient

def test_a_text_turn_and_an_approved_edit_pass_under_bare_run_agent(tmp_path):
    (tmp_path/'ws').mkdir(); (tmp_path/'ws/a.txt').write_text('one\n')
    (tmp_path/'s.json').write_text(json.dumps([[dict(text='Hello.'), dict(tool='edit_file', id='e1', args=dict(path='a.txt', old='one', new='two'))], [dict(text='Done.')]]))
    code = f"import asyncio, acp\nfrom ramabana_acp import AcpAgent\nasyncio.run(acp.run_agent(AcpAgent(model='scripted/{tmp_path}/s.json')))"
    with EditorClient([sys.executable, '-c', code], tmp_path/'ws') as c:
        assert c.initialize()['protocolVersion']==1
        sid = c.new(str(tmp_path/'ws'))
        assert c.prompt(sid, 'go')['stopReason']=='end_turn'
        assert (tmp_path/'ws/a.txt').read_text()=='two\n'
        assert [q['toolCall']['toolCallId'] for q in c.ed.permissions]==['e1']
        assert ''.join(u['content']['text'] for _,u in c.updates if u['sessionUpdate']=='agent_message_chunk')=='Hello.Done.'
