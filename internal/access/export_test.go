package access

// OpenReading is Open with another way to read a file.
var OpenReading = open
