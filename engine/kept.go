package engine

import (
	"cmp"
	"slices"

	"glimpse/eviction"
)

// kept holds sessions, for requests that go on with a conversation, and contexts, for requests that begin with one. They lie in the
// engine's budget as long as nothing else needs it. Then the entry with the lowest worth goes first (GreedyDual-Size, Cao and Irani
// 1997). An entry's worth is the work per byte to make it anew, plus the clock at its last use. The clock is the worth of the last
// entry that went.
type kept struct {
	all   []keptEntry // by when they were last of use
	clock float64
	letGo int64
}

// keptEntry is a session or a context.
type keptEntry struct {
	session *eviction.Session
	context *eviction.Context
	owner   string // of the session; the salt of the context
	bytes   int64
	worth   float64 // tokens that are run anew without it, by its bytes, beside the clock when it was last of use
}

// keep holds an entry that takes so many tokens to make anew.
func (k *kept) keep(x keptEntry, tokens int, bytes int64) {
	x.worth = k.clock + float64(tokens)/float64(max(1, bytes))
	k.all = append(k.all, x)
}

// Keep holds the session of an answer that is done, or was cut short, for the request of its owner that goes on with the
// conversation: of a policy that keeps turns ([eviction.Session.KeepsTurns]), in an engine with a budget. The caller has
// no more use of the session. One that no request has gone on with is let go of when others need its room.
func (e *Engine) Keep(a *Answer) {
	s := a.Request.Session
	if e.Budget == 0 || !a.Done() || a.Err() != nil || !s.KeepsTurns() {
		return
	}
	s.Rest()
	n := int(s.Cache.Next()) // as many bytes for each token, whatever room is spare
	e.kept.keep(keptEntry{session: s, owner: a.Request.Owner, bytes: s.Bytes()}, n, int64(n)*s.Cache.TokenBytes())
}

// Kept is what an engine keeps for requests to come.
type Kept struct {
	Sessions, Contexts int
	Bytes              int64
	LetGo              int64 // sessions and contexts so far that others have needed the room of
}

// Kept is what is kept.
func (e *Engine) Kept() Kept {
	n := Kept{LetGo: e.kept.letGo}
	for _, k := range e.kept.all {
		if n.Bytes += k.bytes; k.context != nil {
			n.Contexts++
		} else {
			n.Sessions++
		}
	}
	return n
}

// LetGo lets go of kept sessions and contexts, of those first that are worth least, until the others hold at most so many bytes.
func (e *Engine) LetGo(most int64) {
	k := &e.kept
	bytes := e.Kept().Bytes
	for len(k.all) > 0 && bytes > most {
		least := slices.MinFunc(k.all, func(a, b keptEntry) int { return cmp.Compare(a.worth, b.worth) })
		i := slices.IndexFunc(k.all, func(x keptEntry) bool { return x.worth == least.worth })
		bytes -= least.bytes
		k.clock = least.worth
		k.all = slices.Delete(k.all, i, i+1) // and refer to it no more
		k.letGo++
	}
}

// resume gives a request that begins with a conversation its session, of several the one that has run most of it.
func (e *Engine) resume(a *Answer) {
	r, best := &a.Request, -1
	for i, k := range e.kept.all {
		if k.session == nil || k.owner != r.Owner {
			continue
		}
		if known := r.Session.GoesOn(k.session, r.Prompt); known > a.known {
			a.known, best = known, i
		}
	}
	if best < 0 {
		return
	}
	s := e.kept.all[best].session
	s.Budget, s.Keep = r.Session.Budget, r.Session.Keep
	r.Session, a.standing = s, int(s.Cache.Next())
	e.kept.all = slices.Delete(e.kept.all, best, best+1)
}
