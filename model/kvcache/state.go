package kvcache

import "glimpse/model"

// recurrent is a layer with a recurrence in the place of attention. It holds the state of all rows so far and no pairs: there is
// nothing in it to evict, and it goes back to no earlier row but the first and the one that Undoable has marked.
type recurrent struct {
	*pairs
	of model.Recurrence
	// now and marked, which is that at Cache.back, are nil where they are the state before the first row.
	now, marked model.State
}

func isRecurrent(l layer) bool {
	_, ok := l.(*recurrent)
	return ok
}

// State is that of a recurrent layer after the rows so far, the cache's own, which the next rows move on.
func (c *Cache) State(layer int) model.State {
	r := c.layers[layer].(*recurrent)
	if r.now == nil {
		r.now = model.NewState(r.room.on, r.room.on, r.of, true)
	}
	return r.now
}

func (r *recurrent) reserveEntries(int, int) {}

// copied is a state of the same numbers in memory of its own.
func (r *recurrent) copied(s model.State) model.State {
	if s == nil {
		return nil
	}
	out := model.NewState(r.room.on, r.room.on, r.of, false)
	out.Set(r.room.on, s)
	return out
}

func (r *recurrent) mark() { r.marked = r.copied(r.now) }

func (r *recurrent) rewindable(next int32) bool {
	return next == 0 || next == r.c.next || next == r.c.back
}

func (r *recurrent) truncate(next int32) {
	switch next {
	case r.c.next:
	case 0:
		r.now = nil
	default:
		r.now = r.marked
	}
	r.marked = nil
}

func (r *recurrent) fork(to *Cache, room *cacheRoom, keep [][]int32, _ int) layer {
	out := &recurrent{pairs: r.forkPairs(to, room, keep, 0), of: r.of}
	out.now = out.copied(r.now)
	return out
}

func (r *recurrent) bytes() int64 { return r.now.Bytes() + r.marked.Bytes() }
