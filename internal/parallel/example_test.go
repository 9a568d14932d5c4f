package parallel_test

import (
	"fmt"

	"glimpse/internal/parallel"
)

// The number of tasks follows from the problem, and each task writes its own output.
func ExampleFor() {
	rows := [][]int{{1, 2, 3}, {4, 5}, {6}}
	sums := make([]int, len(rows))
	parallel.For(len(rows), func(task int) {
		for _, x := range rows[task] {
			sums[task] += x
		}
	})
	fmt.Println(sums)
	// Output: [6 9 6]
}
