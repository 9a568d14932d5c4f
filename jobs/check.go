package jobs

// Check is a row of a table of checks: what must not be, and the error that says so.
type Check struct {
	Bad bool
	Err error
}

// First is the error of the first row that is bad, nil where all is well.
func First(checks ...Check) error {
	for _, c := range checks {
		if c.Bad {
			return c.Err
		}
	}
	return nil
}

// Failed is the row of an error, which is bad unless it is nil.
func Failed(err error) Check { return Check{err != nil, err} }
