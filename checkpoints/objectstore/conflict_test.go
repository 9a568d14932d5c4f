package objectstore

import (
	"errors"
	"testing"

	"github.com/aws/smithy-go"
)

// TestConflicts: a conditional write that meets another one has lost to it, in the words of either server; any other error, and
// a write without a condition, keeps its own.
func TestConflicts(t *testing.T) {
	for _, c := range []struct {
		code   string
		isNew  bool
		exists bool
	}{{"ConditionalRequestConflict", true, true}, {"ExistingObjectIsDirectory", true, true}, {"ExistingObjectIsDirectory", false, false}, {"BucketAlreadyExists", true, false}} {
		err := (&put{opt: PutOptions{New: c.isNew}}).conflict(&smithy.GenericAPIError{Code: c.code})
		if errors.Is(err, ErrExists) != c.exists {
			t.Errorf("%s, new %v: %v", c.code, c.isNew, err)
		}
	}
}
