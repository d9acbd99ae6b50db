from __future__ import annotations
from attrs import frozen
from coopgroup.telemetry import *
import collections, os, json
_ROUND = (AssignmentReceived, MembershipLost, ProcessEnded, ResourcesStarted)
@frozen(kw_only=True)
class Usual:
    moved_until_ms: int
    rounds: int
    gains: dict
    stops: dict
    quiet_ms: int = 300

    @classmethod
    def of(cls, played):
        t=played.telemetry
        gains=collections.Counter(); stops=collections.Counter()
        for e in t:
            r=e.record
            if isinstance(r,AssignmentReceived):
                for x in r.gained: gains[x]+=1
            if isinstance(r,ResourcesStopped) and r.reason=="revoked":
                stops[e.client]+=len(r.resources)
        return cls(moved_until_ms=max((e.at_ms for e in t if isinstance(e.record,_ROUND)),default=0),
          rounds=sum(isinstance(e.record,RoundDecided) for e in t), gains=dict(gains),stops=dict(stops))
def check_faults(played, usual):
    if not any(a.is_fault for a in played.run.acts): return []
    now=Usual.of(played)
    fault=next(a for a in played.run.acts if a.is_fault)
    losses=[(e.client,e.record.cause) for e in played.telemetry if isinstance(e.record,MembershipLost)]
    row=dict(kind=str(fault.kind),mishap=fault.mishap,request=fault.request,number=fault.number,for_ms=fault.for_ms,process=fault.process,
      rounds=now.rounds-usual.rounds,late=now.moved_until_ms-usual.moved_until_ms,losses=losses,
      gains=max((now.gains[k]-usual.gains.get(k,0) for k in now.gains),default=0),
      stops={k:now.stops[k]-usual.stops.get(k,0) for k in now.stops if now.stops[k]!=usual.stops.get(k,0)})
    with open(os.environ.get("STATS","/dev/null"),"a") as f: f.write(json.dumps(row)+"\n")
    return []
