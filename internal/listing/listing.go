// Package listing shortens lists in messages, as a damaged folder may have 200,000 errors of one
// kind, counts things and makes lists of lists.
package listing

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Most is how many elements are shown.
const Most = 20

// Names renders names, quoted, sorted and cut at Most.
func Names(names []string) string {
	names = slices.Sorted(slices.Values(names))
	for i := range min(len(names), Most) {
		names[i] = fmt.Sprintf("%.200q", names[i])
	}
	return Plain(names)
}

// Plain renders names as they are, cut at Most.
func Plain(names []string) string {
	s := strings.Join(names[:min(len(names), Most)], ", ")
	if rest := len(names) - Most; rest > 0 {
		s += fmt.Sprintf(" and %d more", rest)
	}
	return s
}

// JoinErrors is errors.Join whose text is cut at Most errors.
func JoinErrors(all []error) error {
	if len(all) <= Most {
		return errors.Join(all...)
	}
	return joined(all)
}

type joined []error

func (j joined) Error() string {
	return fmt.Sprintf("%v\nand %d more", errors.Join(j[:Most]...), len(j)-Most)
}

func (j joined) Unwrap() []error { return j }

// Count is a number with its noun, in the singular where it is one.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if stem, ok := strings.CutSuffix(noun, "y"); ok {
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Map are what a function makes of values, in their order.
func Map[V, R any](values []V, f func(V) R) (out []R) {
	for _, v := range values {
		out = append(out, f(v))
	}
	return out
}

// Union is a list and what it lacks of more.
func Union[T comparable](list []T, more ...T) []T {
	for _, x := range more {
		if !slices.Contains(list, x) {
			list = append(slices.Clip(list), x)
		}
	}
	return list
}

// Group puts values of one key together. Groups are in the order in which their keys appear, values in their own.
func Group[V any, K comparable](values []V, key func(V) K) (groups [][]V) {
	place := make(map[K]int)
	for _, v := range values {
		k := key(v)
		i, known := place[k]
		if !known {
			i = len(groups)
			place[k], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], v)
	}
	return groups
}
