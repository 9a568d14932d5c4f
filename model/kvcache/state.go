package kvcache

import "glimpse/model"

// A layer with a recurrence in the place of attention holds the state of all rows so far and no pairs: there is nothing in it to
// evict, and it goes back to no earlier row but the one that Undoable has marked.

// recurrence are the states of a cache's recurrent layers.
type recurrence struct {
	of []model.Recurrence // by layer, nil of those that attend; nil: all attend
	// now and marked are by layer, nil where there is none, or it is that before the first row; marked are those at Cache.back.
	now, marked []model.State
}

// recurrent tells that layers have states.
func (c *Cache) recurrent() bool { return c.states.of != nil }

// recurs tells that a layer has one in the place of keys and values.
func (c *Cache) recurs(layer int) bool { return c.recurrent() && c.states.of[layer] != nil }

// State is that of a recurrent layer after the rows so far, the cache's own, which the next rows move on.
func (c *Cache) State(layer int) model.State {
	if c.states.now[layer] == nil {
		c.states.now[layer] = model.NewState(c.On(layer), c.On(layer), c.states.of[layer], true)
	}
	return c.states.now[layer]
}

// copyStates are states of the same numbers in memory of their own.
func (c *Cache) copyStates(from []model.State) []model.State {
	out := make([]model.State, len(from))
	for l, s := range from {
		if s != nil {
			on := c.On(l)
			out[l] = model.NewState(on, on, c.states.of[l], false)
			out[l].Set(on, s)
		}
	}
	return out
}
