// Package compare is the one place where tests compare floating-point numbers.
//
// The error of a value a against a reference b is
//
//	|a − b| / (floor + |a| + |b|)
//
// which is relative for large values and, thanks to the floor (1e-4 unless
// [Floor] says otherwise), absolute near zero, where a relative error means
// nothing. It lies between 0 and 1.
//
// A NaN on either side is always a failure, even where both sides have one: a
// kernel that returns NaN everywhere must not agree with a reference that does.
// Infinities fail too, unless [EqualInf] expects them (a masked logit is −Inf),
// and then only where both sides hold the same one.
//
//	compare.Close(t, "scores", got, want, 1e-5)
//	compare.Close(t, "logits", got, want, 1e-5, compare.EqualInf())
//	worst := compare.Compare(got, want).Err // to judge one kernel by another's own error
package compare
