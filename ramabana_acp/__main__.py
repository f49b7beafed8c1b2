"`python -m ramabana_acp` is the command `ramabana-acp`"
from ramabana_acp.entry import run
if __name__=='__main__': run()
