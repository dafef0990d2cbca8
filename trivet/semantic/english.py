"""Word lists of the verifier: how English asks, negates, quantifies and names opposites.

Written for this project. `features.py` and `verify_rules.py` read them; the fingerprint of the
verifier covers this file.
"""

from __future__ import annotations


def word_set(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def word_list(text: str) -> list[str]:
    """The words of a text, in order."""
    return text.split()


def _groups(text: str) -> list[frozenset[str]]:
    return [frozenset(group.split()) for group in text.split(";")]


def _pairs(text: str) -> frozenset[tuple[str, str]]:
    pairs = [tuple(pair.split("/")) for pair in text.split()]
    return frozenset((one, other) for a, b in pairs for one, other in ((a, b), (b, a)))


STOP = word_set(
    """a an the this that these those is are was were be been being am do does did done doing have
    has had having will would shall should can could may might must of to in on at by for with from
    as into onto about and or but if then than so i me my mine we us our you your yours he him his
    she her hers it its they them their there here what which who whom whose when where why how get
    gets got getting one someone somebody anyone anybody something anything it's please any some
    also just really actually very quite too ever still way ways need needed want like able let
    there's okay ok go going myself yourself itself themselves out up off over under not no never
    without none nor neither per via while during upon within between among through because since
    back such own same possible allowed allow permitted available process procedure step method
    instruction detail info information exactly currently kind sort thing etc"""
)
"""Words without a meaning of their own, or whose meaning other features read."""

NEGATIONS = word_set(
    """not no non never without none nor neither cannot nobody nothing nowhere hardly barely
    lack except excluding"""
)
QUANTIFIERS = word_set(
    """all every each both most least more less fewer few many several some any only half other
    another different always often sometimes rarely entire whole maximum minimum max min
    at-least"""
)
SCOPES = word_set(
    """only except also alone besides including excluding unless even just exclusively other
    another apart"""
)
COMPARATIVES = word_set(
    """more less most least fewer fewest better worse best worst larger smaller largest smallest
    bigger biggest higher lower highest lowest longer shorter longest shortest cheaper cheapest
    faster slower fastest slowest older younger oldest youngest earlier later newer newest first
    last maximum minimum"""
)
PREPOSITIONS = word_set(
    """from to into onto in on off out at by before after during under over above below with
    without within between than via for against until since per inside outside up down through
    as"""
)
POSSESSORS = {
    "my": "i", "mine": "i", "myself": "i", "our": "we", "ours": "we", "your": "you", "yours": "you",
    "his": "he", "her": "she", "hers": "she", "their": "they", "theirs": "they", "someone's": "x",
}  # fmt: skip
RELATIVES = word_set(
    """mother father mum mom dad wife husband son daughter child partner colleague friend brother
    sister boss employee manager neighbor roommate grandmother grandfather baby kid kids children
    parents babies toddler toddlers teenager teenagers pensioner pensioners"""
)

SPELLINGS = {
    "tyre": "tire", "tyres": "tires", "cheque": "check", "programme": "program", "grey": "gray",
    "licence": "license", "metre": "meter", "centre": "center", "litre": "liter",
    "theatre": "theater", "kilometres": "kilometers", "kilometre": "kilometer",
    "metres": "meters", "jewellery": "jewelry", "catalogue": "catalog", "enrol": "enroll",
    "fulfil": "fulfill", "storey": "story", "plough": "plow", "aluminium": "aluminum",
    "mum": "mom", "pyjamas": "pajamas", "organisation": "organization", "travelling": "traveling",
    "cancelled": "canceled", "cancelling": "canceling", "labelled": "labeled", "e-mail": "email",
    "wi-fi": "wifi", "ageing": "aging", "moustache": "mustache", "practise": "practice",
}  # fmt: skip

CONTRACTIONS = {
    "can't": "can not", "cant": "can not", "won't": "will not", "wont": "will not",
    "cannot": "can not", "shan't": "shall not", "dont": "do not", "doesnt": "does not",
    "didnt": "did not", "isnt": "is not", "arent": "are not", "wasnt": "was not",
    "werent": "were not", "havent": "have not", "hasnt": "has not", "couldnt": "could not",
    "wouldnt": "would not", "shouldnt": "should not", "whats": "what is", "wheres": "where is",
    "hows": "how is", "whos": "who is", "whens": "when is", "im": "i am", "ive": "i have",
    "id": "id", "let's": "let us", "y'all": "you", "gonna": "going to", "wanna": "want to",
    "gimme": "give me", "u": "you", "ur": "your", "pls": "please", "plz": "please", "thx": "thanks",
    "r": "r", "ain't": "is not", "2fa": "two factor authentication", "vs": "versus",
    "asap": "soon", "b4": "before", "everybody": "everyone", "howto": "how to",
}  # fmt: skip

FILLERS = tuple(
    tuple(phrase.split())
    for phrase in """
please; thanks; thank you; many thanks; thanks in advance; cheers; hi there; hello there;
hey there; hi; hello; hey; good morning; good afternoon; good evening; morning; dear team; um;
uh; er; erm; hmm; well; so; ok so; okay; sorry to bother you but; sorry to bother you; sorry;
excuse me; quick question; just a quick question; just wondering; i was just wondering;
i was wondering if you could tell me; i was wondering; i wonder; i am wondering;
could you tell me; can you tell me; would you tell me; could you please tell me;
can you please tell me; could you let me know; can you let me know; please tell me; tell me;
do you know; do you happen to know; could you explain; can you explain;
would you mind telling me; could someone tell me; can someone tell me; can anyone tell me;
does anyone know; i would like to know; i want to know; i need to know; i would love to know;
help me understand; i have a question; basically; like; you know; i mean; by the way;
if possible; if you do not mind; any idea; any chance
""".strip()
    .replace("\n", " ")
    .split(";")
)
"""Politeness and hesitation, longest first when matched at the edges of a text."""

SYNONYMS = _groups("""
buy purchase; cost price charge fee pay; fee rate; cheap inexpensive affordable;
delivery shipping deliver ship dispatch; parcel package; begin start; end finish;
stop cease quit; open opening; close shut; hour time; fix repair mend; big large;
size dimension; small little; quick fast rapid quickly soon; allow permit let;
ban forbid prohibit; refund reimbursement reimburse; holiday vacation leave;
cancel cancellation; reserve book reservation booking;
cell mobile phone cellphone smartphone telephone; laptop notebook; pc computer;
picture photo image photograph; film movie; car vehicle automobile auto; kid child;
adult grown-up; remove delete erase; add insert; create make; change alter modify edit update;
choose select pick; get obtain receive; send submit; show display; find locate; tell inform;
help assist assistance support; contact reach; login signin; account profile; job work;
company firm business employer; worker employee staff; wage salary pay; doctor physician gp;
medicine drug medication; ill sick; symptom sign; shop store; client customer;
teacher instructor; begin commence; question query; answer reply response; error bug fault;
problem issue trouble; bag baggage luggage; plane flight airplane aircraft; ticket fare;
stay remain; need require must; enough sufficient; necessary required needed; cause reason why;
happen occur; need requirement; use utilize; talk speak; avoid prevent;
reduce lower cut decrease; increase raise; improve enhance; limit maximum allowance cap;
type kind sort; movie film; part component; photo image; site website; repo repository;
app application; program software; folder directory; remember recall; document paperwork;
policy rule; guarantee warranty; enable activate; disable deactivate; suspend pause freeze;
resume restart; unlock unfreeze; join register enroll; quick speedy; couch sofa;
flat apartment; garbage rubbish trash waste; gas petrol; bill invoice; receipt proof;
money cash; broken damaged faulty; lost missing; copy duplicate; fall drop;
postpone defer delay; pharmacy chemist; insurance cover policy; author writer; inventor invent;
live inhabitant population; many number count; long duration length; tall high; tap faucet;
sweater jumper; country nation; town city; road street; house home; great good; begin launch;
rating score; term condition; discount deal; expire end; owner own; exit leave
""")

OPPOSITES = _pairs("""
full/part full-time/part-time easy/hard easy/difficult correct/wrong right/wrong true/false
stay/leave near/far close/far clever/stupid smart/stupid intelligent/stupid serious/playful
real/fake within/after within/outside before/during take/avoid can/cannot until/after until/from
by/after in/out on/off before/after with/without from/to under/over above/below up/down more/less
most/least more/fewer max/min maximum/minimum include/exclude included/excluded enable/disable
activate/deactivate allow/ban allow/forbid allow/prohibit permit/forbid import/export
upload/download add/remove add/delete create/delete grant/revoke subscribe/unsubscribe
install/uninstall increase/decrease increase/reduce increase/lower raise/lower raise/reduce
cheapest/priciest buy/sell lend/borrow send/receive deposit/withdraw open/close open/closed
open/shut start/stop start/end begin/end begin/finish start/finish first/last early/late
lock/unlock freeze/unfreeze archive/unarchive pause/resume follow/unfollow block/unblock
arrive/depart arrival/departure join/leave accept/reject accept/decline accept/refuse
approve/reject approve/deny encrypt/decrypt push/pull inside/outside indoor/outdoor hot/cold
benefit/drawback advantage/disadvantage pro/con upside/downside strength/weakness eat/avoid
use/avoid improve/damage improve/harm improve/worsen help/harm help/hurt safe/dangerous
safe/unsafe legal/illegal successful/unsuccessful success/failure online/offline online/in-store
buyer/seller landlord/tenant employer/employee teacher/student public/private hide/show show/hide
visible/hidden spicy/mild expensive/cheap new/old used/unused opened/unopened lost/found
connect/disconnect link/unlink attach/detach enter/exit entrance/exit inbound/outbound
incoming/outgoing domestic/international adult/child upgrade/downgrade cooked/raw cooked/uncooked
day/night win/lose love/hate always/never everyone/nobody inclusive/exclusive minimum/maximum
ascending/descending above/under over/below left/right north/south east/west weekday/weekend
positive/negative single/joint single/double prepaid/postpaid mandatory/optional
compulsory/optional required/optional provide/bring merge/split fall/rise build/demolish
wear/remove rise/drop higher/lower highest/lowest bigger/smaller biggest/smallest larger/smaller
largest/smallest longer/shorter longest/shortest tallest/shortest faster/slower better/worse
best/worst newest/oldest latest/oldest charge/drain lead/follow opt-in/opt-out sign-in/sign-out
check-in/check-out gain/lose long/short up/off abroad/home healthy/unhealthy cause/prevent
encourage/discourage
""")

COMMANDS = word_set(
    """cancel book order buy send delete remove add change update reset upgrade downgrade refund
    export import enable disable turn set create open close pay transfer renew schedule activate
    deactivate block unblock freeze unfreeze subscribe unsubscribe stop start pause resume lock
    unlock give make put play remind call email forward download upload install uninstall rename
    move share invite merge increase decrease raise lower convert submit approve reject ship return
    exchange reserve switch connect disconnect log sign register file report"""
)
