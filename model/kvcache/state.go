package kvcache

import "glimpse/model"

// A layer with a delta net in the place of attention holds the state of all rows so far and no pairs: there is nothing in it to
// evict, and it goes back to no earlier row but the one that Undoable has marked.

// recurrence are the states of a cache's recurrent layers.
type recurrence struct {
	shape *model.DeltaShape
	// now and marked are by layer, nil where there is none, or it is that before the first row; marked are those at Cache.back.
	now, marked []*model.DeltaState
}

// recurrent tells that layers have states.
func (c *Cache) recurrent() bool { return c.states.shape != nil }

// recurs tells that a layer has one in the place of keys and values.
func (c *Cache) recurs(layer int) bool { return c.recurrent() && c.states.shape.Layers[layer] }

// State is that of a recurrent layer after the rows so far, the cache's own, which the next rows move on.
func (c *Cache) State(layer int) *model.DeltaState {
	if s := c.states.now[layer]; s != nil {
		return s
	}
	on := c.On(layer)
	c.states.now[layer] = model.NewDeltaState(on, on, c.states.shape, true)
	return c.states.now[layer]
}

// copyStates are states of the same numbers in memory of their own.
func (c *Cache) copyStates(from []*model.DeltaState) []*model.DeltaState {
	out := make([]*model.DeltaState, len(from))
	for l, s := range from {
		if s != nil {
			on := c.On(l)
			out[l] = model.NewDeltaState(on, on, c.states.shape, false)
			out[l].Set(on, s)
		}
	}
	return out
}
