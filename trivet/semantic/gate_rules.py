"""What must never pass the gate, whatever a classifier makes of it, and two forms that may.

`find_rule` names the first rule that a text meets. A rule says what the text is; a policy may open
that intent, unless the rule is of the `NEVER` kind. All of them read normalised words
(`gate_features.normalised`), joined by single spaces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trivet.canonical import digest
from trivet.policies.intents import Intent

VERSION = 2
"""To be raised when `find_rule` reads a text in another way."""

NEVER = frozenset({"instructs-model", "negated-command"})
"""Rules that hold under every policy."""


@dataclass(frozen=True, slots=True)
class Rule:
    """`intent` is what a text is that has `pattern` and has not `unless`."""

    name: str
    intent: Intent
    pattern: re.Pattern[str]
    unless: re.Pattern[str] | None = None

    def meets(self, line: str) -> bool:
        """Whether the rule holds for a line of normalised words."""
        return bool(self.pattern.search(line)) and not (self.unless and self.unless.search(line))


_IN_CASE = (
    r"^what (happens|to do|(do|should|can|could|must|would) (i|we|you|one) do) (if|when|in case)\b"
)
_DATED = r"\b(1\d{3}|20[01]\d|202[0-5])\b"
COMMAND = (
    "cancel|refund|reimburse|book|reserve|send|email|text|call|phone|dial|ring|message|remind|wake|"
    "schedule|reschedule|play|pause|resume|shuffle|skip|mute|unmute|stop|turn|switch|dim|lock|"
    "unlock|open|close|launch|start|restart|reboot|delete|remove|erase|clear|add|put|order|buy|"
    "purchase|pay|transfer|deposit|withdraw|wire|subscribe|unsubscribe|upgrade|downgrade|reset|"
    "restore|activate|deactivate|enable|disable|block|unblock|freeze|deploy|install|uninstall|"
    "upload|submit|post|tweet|share|forward|reply|archive|rename|approve|reject|assign|revoke|"
    "rotate|register|enroll|enrol|apply|confirm|renew|return|replace|lower|raise|increase|reduce|"
    "decrease|adjust|set|snooze|save|edit|modify|update|change|export|import|download|sync|merge|"
    "roll|take|snap|record|print|scan|navigate|drive|connect|disconnect|pair|cut|shut|kill"
)
_ASKING = (
    "(how|where)( (do|can|could|should|would|may|might) (i|we|you)| to)|what (do|must) i (have|"
    "need) to do (to|for)|is it possible( to)?|(can|could|may) i|i (want|need|would like|have "
    "got|have|am trying|try|do not know|don't know|can't|cannot)|help|assistance|what is the "
    "(way|process) to"
)
_DEALS = (
    "(buy|buying|earn|purchase|purchasing|shop|order(ing)?) (a|an|some|several|more|new|the|two|"
    r"one|any|few|your|from your)\b|\b(un)?subscrib\w+|sign(ing)? up|newsletters?|(leave|leaving|"
    r"write|writing|submit|submitting|post|make|file|send|sending|lodge) \w* ?(\w+ )?(reviews?|"
    "feedback|opinions?|complaints?|comments?|claims?)|(shipping|delivery|billing|mailing) "
    r"address(es)?\b|(get|getting|request|obtain|obtaining|ask for|claim|demand) (a |an |my |"
    "some |the )?(money back|refunds?( of|$)|reimbursements?|compensations?|rebates?|"
    r"restitutions?)|(cancel|change|edit|modify|update|track|swap|switch|delete|remove|add)\w* [\w "
    r"]*\b(order|"
    r"purchase|booking|reservation|subscription|membership)s?\b|(delete|close|create|open|block|"
    r"freeze|cancel|edit|switch|register|deactivate) (my |an |a |the |another |your )?(\w+ "
    r")?(account|card|profile)s?\b|checkbooks?|(more|new|extra) "
    r"(checks|business cards)|mailing list|email updates|(get|getting) (hold of|in touch|through "
    r"to)|(pay|paying) (my|a|the) (bill|"
    r"invoice)s?|(speak|talk|speaking|talking|chat|contact\w*|reach\w*) (to|with|a|an|your|"
    r"customer|some\w*)?"
)
_RECORDS = (
    "balance|orders?|package|parcel|delivery|shipment|refund|reimbursement|rebate|application|"
    "claim|payments?|transfer|reservations?|bookings?|appointments?|prescription|invoices?|"
    "receipts?|bills?|statement|transactions?|paycheck|payslip|salary|pto|score|rating|limit|"
    "apr|calendar|alarms?|reminders?|schedule|meetings?|inbox|messages|emails|contacts|flight|"
    "location|points|miles|usage|spending|debt|taxes|rent|gas|fuel|tank|mileage|shopping list|"
    "to do list|name|vacation|days off|sick days|leave|results|grades?|diagnosis|medication|"
    "permissions|role"
)

_ROLES = (
    "interns?|employees?|staff|guests?|contractors?|visitors?|users?|members?|managers?|admins?|"
    "students?|teachers?|customers?|trainees?|volunteers?|everyone|anyone|everybody|anybody"
)

_RULES: tuple[tuple[str, Intent, str, str], ...] = (
    ("instructs-model", Intent.ACTION,
     r"\b(ignore|disregard|forget|override) (all |any |the |your |every )*(previous|prior|above|"
     r"earlier|system|rules|instructions)|system prompt|\bjailbreak|developer mode", ""),
    ("negated-command", Intent.ACTION,
     rf"^(please )?(do not|don't|never|stop|no longer|without) (\w+ )?({COMMAND})\b", ""),
    ("long-number", Intent.PERSONAL, r"\d{6,}|#\d{3,}|\b(order|purchase|ticket|invoice|case|claim|"
     r"booking|account|card|tracking)( number| no| id)? #?[a-z]*\d{3,}", ""),
    ("command", Intent.ACTION,
     rf"^(?!add \w+ (and|to|by) \w+$)(please |just |kindly |now |go ahead and )*({COMMAND})\b",
     r"\b(how|what|which|why)\b|\b(steps|instructions|guide|options|times|methods|policy|"
     r"documentation|details|rules|hours|time|definition|conditions|meaning|spelled)\b"),
    ("request", Intent.ACTION,
     "^(please )?(can|could|would|will) (you|we|"
     "someone) (please |just |kindly |also |go "
     f"ahead and )*({COMMAND}|make|get|find|bring|"
     r"fix)\b", r"^(can|could) you find out (what|how)"),
    ("favour", Intent.ACTION,
     r"^(please )?(grant|give) (?!me |us )(the |our )?\w+ (\w+ )?(rights?|access|permissions?)\b|"
     r"^is it possible to (have|get) (an?|the|my|some) .*\b(booked|reserved|delivered|sent|made)\b|"
     r"^(do|have|start|play) (an?|another) ([\w']+ )?[\w']+ with me\b|"
     r"^(can|could|is|are) (the|my|all|our) (\w+ )?(lights?|lamps?|heater|fan|tv|oven|thermostat|"
     r"sprinklers?|blinds|speakers?|alarm system|air conditioner|smart plug|door lock|volume|"
     r"vacuum cleaner|dishwasher) (be )?(set|turned|switched|dimmed|locked|unlocked|"
     r"started)\b", ""),
    ("deal", Intent.ACTION, rf"^({_ASKING})\b.*\b({_DEALS})",
     r"\b(policy|policies|how long|when|include|included|cost|cases?|situations?|circumstances|"
     r"conditions|from [a-z]+$)\b"),
    ("agent", Intent.ACTION,
     r"\b(person|agent|human|somebody|someone|representative) (i can |i could |to )(talk|speak|"
     r"call|"
     r"chat)\b", ""),
    ("own-record", Intent.PERSONAL, rf"\b(my|our) ([\w']+ ){{0,2}}({_RECORDS})\b",
     r"^how (do|can|to|would) .*\b(change|reset|set|export|download|import|sync|verify|update|"
     r"back up|read|understand|increase|raise|lower|reduce|print|protect|improve)\b|" + _IN_CASE),
    ("own-record", Intent.PERSONAL,
     r"\b(do|did|have|am|was|will) i (still |already |ever |currently )*(have|owe|spent|spend|used|"
     r"paid|pay|earned|scheduled|supposed|booked|approved)\b.*\b(left|today|owe|scheduled|spent|"
     r"spend|meetings?|reminders?|alarms?|reservation|bills?|list|remaining)\b", ""),
    ("own", Intent.PERSONAL,
     "^((please |can you |could you |i (need|want) to )*(tell|show|check|see|know|find|give|"
     r"look|read|list)\b.*|(what|what's|when|where|where's|which|who|who's|is|are|has|have|did|"
     r"does|was|how (is|are|much|many|did|does|has|have|was))\b.*)\b(my|mine)\b",
     r"\b(fees?|charge\w*|abroad|replac\w+|chang\w+|fridge|freezer|refrigerator|substitut\w+|"
     "recipe|plug|converter|how (to|do|can)|flowers?|plants?|cake|bread|dog|cat|use my|"
     "options|methods|policy|circumstances|cases|situations|tires|steps|instructions|my "
     r"(dinner|lunch|time|eggs|milk|love|heart|life|fire|fair lady|ding|wedding))\b|^who "
     r"(wrote|sings?|sang|played|plays|said|made)\b|^when (did|was) my\b.* (come|released)|"
     + _IN_CASE),
    ("own-trouble", Intent.PERSONAL,
     r"\bwhy (was|were|am|did|have|had|has|is|are|can't|cannot|couldn't|wasn't|"
     r"haven't|didn't) (i|my|our)\b|\bwhy (did|have|has) (you|they|the \w+|my \w+) (\w+ ){1,2}"
     r"(me|us|my|our)\b", ""),
    ("own-paper", Intent.PERSONAL,
     r"^(where|how) ((do|can|could|should) i|to) (check|see|find|get|download|view|locate) (the|"
     r"an?|"
     r"my) (invoice|bill|receipt|statement)s?\b|\b(security code|limit|rate|number|expiration "
     r"date|expiry date|due date|balance) (of|for|on) (the|my|this) (\w+ )?(card|account|policy|"
     r"loan|"
     r"visa|mortgage)$", ""),
    ("trouble-report", Intent.PERSONAL,
     r"\b(report|reporting|notify|inform)\b.*\b(problems?|issues?|errors?|trouble|mistakes?) (with|"
     r"during|in|on) (\w+ )?(registration|registering|sign ?up|signing up|payments?|paying|"
     r"checkout|orders?|bills?|invoices?|accounts?|log ?in)\b", ""),
    ("own-gauge", Intent.PERSONAL,
     r"\b(tire pressure|air pressure|(fuel|gas|oil|battery) (level|gauge|tank)|in (the|my) tank)\b",
     r"\b(should be|recommended|normal|mean|what is (a|an))\b"),
    ("own-place", Intent.PERSONAL,
     r"\b(where am i|where i am|am i (on|in|at)\b|my (current )?location)",
     ""),
    ("access", Intent.PERMISSION,
     r"\b(am i|are we|is (he|she|\w+)|are (guests|users)) (allowed|authori[sz]ed|permitted) to\b|"
     r"\bdo (i|we) have (the )?(access|permission|rights)\b|\bwho (has|have) access\b|"
     r"\b(access|permissions?) (do|does) (i|he|she)\b|"
     r"\bwho (can|may|might|could|has|have) (see|open|enter|read|change|access|edit|delete|approve|"
     r"view|a key|keys|rights|permission)\b|"
     r"^(what|which) \w+ (can|may) (i|we) (open|see|edit|access|view|read)\b",
     r"^how (many|much)|\b(bring|take|carry)\b"),
    ("own-state", Intent.PERSONAL,
     r"\b(for|like) (me|us|myself)\b|\b(suits?|fits?|good|bad|safe|ok|right|happens?|hurts?|harms?|"
     r"kills?) (to |on |with )?me\b|(?<!do )(?<!can )(?<!should )(?<!could )(?<!must )(?<!may )"
     r"(?<!did )(?<!would )(?<!might )\bi (\w+ly )?(take|took|weigh|suffer|smoke|drink)\b|"
     r"\bmy (son|daughter|child|kid|baby|wife|husband|mother|father|partner) (is|has|was|weighs|"
     r"takes|had|got)\b|^should i (take|stop taking|see)\b|"
     r"\b(i'm|i am|i was|we're|we are) (\w+ly |also |already )*(a|an|vegan|vegetarian|allergic|"
     r"intolerant|pregnant|diabetic|"
     r"breastfeeding|nursing|taking|diagnosed|prescribed|treated|given|on|over|under|about|almost|"
     r"born|married|\d+\w*)\b|"
     r"\bi('ve| have) been (taking|diagnosed|prescribed|treated|told)\b|\bwhat i have\b|"
     r"\bmy (\w+ )?(age|weight|height|condition|symptoms?|allerg\w+|pregnancy|diabetes|asthma|"
     r"blood|doctor|dose|medicines?|pills|illness|disease|situation|circumstances|income|"
     r"nationality)\b", r"^(can|could|would|will) you (explain|define|describe|spell)\b|"
     "^(explain|define|describe|spell) |"
     "^how (do|can|could|to) (i |we )?(change|switch|choose|find) my (\\w+ )?doctor$"),
    ("own-state", Intent.PERSONAL,
     r"(?<!do )(?<!can )(?<!could )(?<!should )(?<!must )(?<!would )(?<!may )"
     r"\bi('ve got| have got| have| had| got)\b(?! ((got )?to|a (\w+ )?question|questions|no "
     r"idea|been wondering|always|never)\b)",
     r"^how (do|can|could|should|would|to)\b"),
    ("own-duty", Intent.PERSONAL,
     r"^(so |and |but )?do (i|we) (\w+ly |still |also |even )*(need|have to|qualify|owe|require)"
     r"\b|\b(if|whether) (i|we) (need|qualify|owe|am|are)\b|\b(am|are) (i|we) (\w+ )?(eligible|"
     r"entitled|required|supposed|qualified|covered|liable|exempt|obliged|insured|old enough)\b",
     r"^do (i|we) (\w+ )?need (an? |any |the |special )?(\w+ )?(account|appointment|ticket|app|"
     r"login|receipt|reservation|landline|sim|code|password|router|adapter|computer|smartphone|"
     r"printer|tools?|software|internet connection|subscription|membership)\b"),
    ("access", Intent.PERMISSION,
     r"\b(am|are) (i|we) (\w+ )?(allowed|authori[sz]ed|permitted|cleared|licensed)\b|"
     r"\b(accessible|visible|readable|writable|restricted|off limits|unlocked) (to|for|by) \w+|"
     r"\bcan (the |an? |our |"
     rf"all |new )*({_ROLES}) (\w+ly )?(see|access|open|enter|view|read|edit|change|delete)\b|"
     rf"\b({_ROLES}) (be )?(allowed|authori[sz]ed|permitted) ", ""),
    ("leans", Intent.CONTEXT,
     r"^(which|what) (one|ones|of (these|them|those))\b|^(can|could|would) you (please "
     r")?(elaborate|"
     r"clarify|rephrase|repeat|give (me )?(an )?examples?)( (that|this|it))?$|^(how|why|when|"
     r"where) "
     r"(does|do|is|did|was|would|will) (he|she|they|this|that|it) \w+$", ""),
    ("invents", Intent.CREATIVE,
     r"^(what's|what is|give me|think of) an? (good|funny|catchy|creative|cute) (name|title|pun|"
     r"pick "
     r"up line|caption|username|nickname|slogan|password|tagline|gift)\b", ""),
    ("now", Intent.TIME,
     r"\b(right now|today|today's|tonight|tomorrow|yesterday|currently|at (the|this) moment|"
     "nowadays|these days|latest|newest|most recent|most recently|upcoming|so far|anymore|at "
     "present|as of now|up to date|this (year|month|week|weekend|season|morning|evening|"
     "afternoon)('s)?|(last|next) (year|month|week|weekend|night|season|monday|friday|"
     r"sunday)('s)?|next)\b",
     r"\bnext to\b|\bup to date (on|with) (shots|vaccin)"),
    ("current", Intent.TIME, r"\b(current|present|now|recent|recently|new season|still alive)\b",
     _DATED +
     r"|\b(alternating|direct|electric|ocean|rip) current|\bcurrent (event|asset|density)"),
    ("last", Intent.TIME, r"\blast\b",
     r"\blast names?\b|\b(how (long|many|much)|does|do|will|can|long|should|to|they|"
     r"it|wars?|tires) (\w+ ){0,6}last\b|\blast \w+ (in|on|by|into|from) the (fridge|"
     r"freezer|pantry)|\blast (long|forever|stanza|supper|unicorn|airbender|samurai|"
     "mohicans)|" + _DATED),
    ("office", Intent.TIME,
     r"^(who is|who's|who are|who|what is|name of|name|what are the names? of)\b.*\b(president|"
     r"minister|king|queen|ceo|cfo|governor|mayor|senators?|coach|manager|captain|secretary|"
     r"chairman|chairperson|commissioner|speaker|ambassador|quarterback|chancellor|sheriff|chief|"
     r"director general|head of|leader|leads|owner|owns|runs|champions?|represents|representative|"
     r"deputy|attorney general|dean|principal|judge|justices?|pope|bishop)\b",
     r"\b(was|were|first|second|third|wrote|sang|played|plays|sings|voiced|became|"
     r"\d+(st|nd|rd|th))\b|what is (a|an|the (role|job|difference|meaning))\b|" + _DATED),
    ("record-holder", Intent.TIME,
     r"\b(has|have|had|holds?|with|scored|won|made|hit|got) (\w+ ){0,3}(most|record|"
     r"highest|longest|best|fewest|largest|biggest|fastest)\b|\b(most|highest|longest) "
     r"[\w ]+ (in|of) (\w+ )?(history|all time|a (season|game|career|match|row))|"
     r"\ball[ -]time\b|\b(highest|best)[ -](paid|selling|grossing)\b|\bworld "
     r"records?\b|\brecord for\b|^most \w+ in\b|\bever (recorded|made|built|sold|lived|"
     r"scored)|\bin the world$", _DATED),
    ("superlative", Intent.TIME,
     r"\b(what|which|who|where)\b.*\b(most|largest|biggest|highest|tallest|richest|longest|oldest|"
     r"youngest|busiest|fastest|deadliest|newest|leading|number one|top|best|greatest|wealthiest|"
     r"poorest|cheapest|strongest)\b.*\b(city|cities|country|countries|state|states|company|"
     r"building|bridge|person|man|woman|player|players|actor|athlete|airport|university|"
     r"producers?|exporters?|population|team|party|religion|language|stadium|economy|army|"
     r"military|youtube|world|asia|africa|europe|america|usa|india|uk)\b",
     r"\b(bone|muscle|organ|planet|element|in the body|cell)\b|" + _DATED),
    ("population", Intent.TIME,
     r"\bpopulation (of|in)\b|\bpopulous\b|\bhow many people (live|die|are|have|work|speak)|"
     r"\b(minimum wage|unemployment|inflation rate|interest rates?|crime rate|net worth|life "
     r"expectancy)\b|\bpercent(age)? of\b.*\b(people|children|population|americans|adults|women|"
     r"men|kids|households|students|workers|voters|families|companies)\b|\bhow many\b.*\b(are "
     r"there|exist|live|are|in) (in )?(the )?(us|usa|u\.?s|united states|america|uk|united "
     "kingdom|england|india|canada|world|europe|africa|asia|australia|germany|china)$",
     _DATED),
    ("price", Intent.TIME,
     r"\b(price|cost|worth|value|salary|(the|average|hourly|starting) pay) (of|for|in)\b|"
     r"\bhow much (money )?(does|do|is|are|would|should|will) .*\b(make|earn|i pay for|costs?|"
     r"worth|paid|go for|charge|"
     r"sell for)\b|\busually cost\b|\b(commission|going rate)\b|\bsalary\b|\bstock\b|\bshares? "
     r"price",
     r"\b(plan|plans|shipping|delivery|fee|subscription|membership|tier|licence|license|ship|"
     r"postage|movie|film|build|soup|stock photo|(extra|additional|second|checked) "
     r"(bag|suitcase|seat|user|line|sim|card|copy))\b|\bin (1\d|20)\d\d\b"),
    ("volatile", Intent.TIME,
     r"\b(weather|forecast|headlines|news|traffic|exchange rates?|trending|outage|near me|"
     r"nearby|around (here|me)|in stock|happening|going on|on tv|what time is it|what's the time|"
     r"what day is|what date is|where (can|could|do) (i|we|you|one) (watch|stream)|"
     r"how long (is|are) the (wait|queue|line|delay)s?(?! (period|list))|stock market|"
     r"air quality|sunset|sunrise|the score|top stories)\b|"
     r"^(is|are) [\w ]+ (down|open|up|online|working|delayed|available)( for [\w ]+)?$|^weather|"
     r"^events?\b",
     r"\b(difference|meaning|definition|define|newsletter|stand for|on (sundays|"
     r"weekends|holidays|saturdays)|included)\b|" + _DATED),
    ("money-now", Intent.TIME,
     r"\b(dollars?|euros?|yen|pesos?|rupees?|francs?|yuan|rials?|"
     r"usd|eur|gbp)\b.*\b(to|in|into|and|for|from|worth|against|"
     r"buy|between)\b.*\b(dollars?|euros?|yen|pesos?|rupees?|"
     r"francs?|pounds?|yuan|rials?|usd|eur|gbp|won|currency)\b|"
     r"\bexchange rate\b", r"\b(bill|history|symbol)\b"),
    ("undated-contest", Intent.TIME,
     "^(who|which (team|country)|when|where|what team|how many (times|titles|goals|points|"
     r"medals|cups|championships))\b.*\b(won|win|wins|winner|beat|lost|qualif\w+|nominated|"
     r"eliminated|playing|hosting|hosted|perform\w*|drafted|traded|final|finals|finale|"
     "playoffs?|championships?|premiership|stanley cup|super bowl|world cup|olympics|world "
     r"series|outstanding|grammys?|emmys?|oscars?|awards?)\b",
     r"\b(first|invented|war|battle|revolution|original|originally|started|created|"
     r"founded|\d+(st|nd|rd|th)|seasons? \d+|called|in the (movie|film|book)|rules|"
     r"civil)\b|" + _DATED +
     r"|\b\d0s\b|\bin \d\d\b"),
    ("running-series", Intent.TIME,
     r"\b(how many|number of) (seasons?|episodes?|ep|eps|albums|movies|books|children|kids)\b|"
     r"\bwhen (is|does|do|will|are)\b.*\b(season|episode|come out|coming out|air|airing|release|"
     r"released|start|premiere|come on|play)\b|\bgoing to be\b|\bnew (season|episode|movie|"
     r"album|series)\b",
     r"\bhow long\b|\b(19|20)\d\d\b|\b(season|seasons|episode) \d+|\bfirst\b|\bif i'm going to\b"),
    ("age", Intent.TIME, r"\bhow old (is|are)\b|\bhow long (has|have)\b",
     r"\b(earth|universe|sun|moon)\b"),
    ("how-to", Intent.INFORMATIONAL,
     r"^how (do|can|could|would|should) (i|we|you|one) (reset|change|update|recover|export|import|"
     r"download|set|verify|turn on|enable) (my|the|a|our) (password|email( address)?|username|"
     r"profile (picture|photo)|display name|language|time zone|data|contacts|"
     r"notification settings|two factor authentication)$", ""),
    ("hours", Intent.INFORMATIONAL,
     r"^(when|what (hours|days)) (are|is) (you|you guys|your (shop|store|office)|the (shop|store|"
     r"office|library|museum|gym)) (usually |normally )?open( on (weekends|holidays|sundays))?$",
     ""),
)  # fmt: skip

RULES: tuple[Rule, ...] = tuple(
    Rule(name, intent, re.compile(pattern), re.compile(unless) if unless else None)
    for name, intent, pattern, unless in _RULES
)


def version() -> str:
    """Hex, of every rule, in order."""
    said = [
        f"{rule.name} {rule.intent} {rule.pattern.pattern} {rule.unless and rule.unless.pattern}"
        for rule in RULES
    ]
    return digest(str(VERSION).encode(), *(line.encode() for line in said)).hex()


def find_rule(words: list[str]) -> Rule | None:
    """The first rule that the words of a text meet, or None."""
    line = " ".join(words)
    return next((rule for rule in RULES if rule.meets(line)), None)
