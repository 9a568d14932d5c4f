// Package confidence bounds the mean of bounded losses by betting (Waudby-Smith and Ramdas,
// arXiv:2010.09686, §4).
//
// A bettor who doubts that the mean is m or more stakes a share of the capital on every loss L:
//
//	capital ← capital · (1 − λ(L − m)),   0 < λ ≤ 1/(1 − m)
//
// Losses are at most 1, so that no factor is negative. Where the mean is m or more, no factor is expected to be
// above 1: the capital is a nonnegative supermartingale, and it ever reaches 1/δ with a probability of at most δ
// (Ville). So 1/capital is a p-value, whenever one looks. Losses may be as far below 0 as they like.
//
// λ is a share of the largest one. The capital is divided over ten fixed shares, 0.1 to 1, and each part bets with
// its own. A mixture of fixed bets does not depend on the order of the losses. All numbers are logarithms.
//
// Betting adapts to how much losses vary. That is why it is here, and not Hoeffding–Bentkus, which knows
// only the mean: TestAgainstHoeffdingBentkus has the numbers. Of losses between 0 and 1 with a small variance the
// upper bound at n = 100 to 300 is lower by a tenth to a quarter, and of losses that may be negative, which
// Hoeffding–Bentkus takes for ones of twice the range, by more than half. Of losses that are 0 or 1
// Hoeffding–Bentkus is the tighter one, by 6% to 14%, but for one fixed number of losses alone.
package confidence
