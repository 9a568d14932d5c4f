// Package modelfile reads the small files of model folders, which come from anywhere:
// what is not a regular file is refused before it is opened, what is larger than its
// limit before it is read, and what stands in the place of a file that was not
// downloaded is called by its name.
package modelfile
