package jobs

import "fmt"

// Refuse is a row of a table of checks: the error that is written as by fmt.Errorf where something is bad, and else nil.
// cmp.Or gives the first of a table.
func Refuse(bad bool, format string, args ...any) error {
	if !bad {
		return nil
	}
	return fmt.Errorf(format, args...)
}
