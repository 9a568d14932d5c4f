package jinja

import (
	"slices"
)

// sortOrder is the places of keys in their order; equal ones stay as they are.
func (r *run) sortOrder(keys []value, reverse bool) ([]int, error) {
	if err := r.chargeItems(len(keys)); err != nil {
		return nil, err
	}
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	var failed error
	less := func(i, j int) bool {
		if failed != nil {
			return false
		}
		yes, err := r.order("<", keys[i], keys[j], 0)
		if err == nil {
			err = r.charge(nodeCost)
		}
		failed = err
		return yes && err == nil
	}
	slices.SortStableFunc(order, func(i, j int) int {
		if reverse {
			i, j = j, i
		}
		switch {
		case less(i, j):
			return -1
		case less(j, i):
			return 1
		}
		return 0
	})
	return order, failed
}
