package engine

import (
	"slices"

	"glimpse/eviction"
)

// kept are sessions whose answers are done, for requests that go on with their conversations. They lie in the engine's
// budget where nothing else needs it.
type kept struct {
	sessions []keptSession // by when they were last answered
	letGo    int64
}

type keptSession struct {
	session *eviction.Session
	owner   string
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
	e.kept.sessions = append(e.kept.sessions, keptSession{s, a.Request.Owner})
}

// Kept is how many sessions are kept, the bytes that they hold, and how many have been let go of so far.
func (e *Engine) Kept() (sessions int, bytes, letGo int64) {
	for _, k := range e.kept.sessions {
		bytes += k.session.Bytes()
	}
	return len(e.kept.sessions), bytes, e.kept.letGo
}

// LetGo lets go of kept sessions, of those first that have waited longest, until the others hold at most so many bytes.
func (e *Engine) LetGo(most int64) {
	_, bytes, _ := e.Kept()
	for len(e.kept.sessions) > 0 && bytes > most {
		bytes -= e.kept.sessions[0].session.Bytes()
		e.kept.sessions = slices.Delete(e.kept.sessions, 0, 1) // and refer to it no more
		e.kept.letGo++
	}
}

// resume gives a request that begins with a conversation its session, of several the one that has run most of it.
func (e *Engine) resume(a *Answer) {
	r, best := &a.Request, -1
	for i, k := range e.kept.sessions {
		if k.owner != r.Owner {
			continue
		}
		if known := r.Session.GoesOn(k.session, r.Prompt); known > a.known {
			a.known, best = known, i
		}
	}
	if best < 0 {
		return
	}
	s := e.kept.sessions[best].session
	s.Budget = r.Session.Budget
	r.Session, a.standing = s, int(s.Cache.Next())
	e.kept.sessions = slices.Delete(e.kept.sessions, best, best+1)
}
