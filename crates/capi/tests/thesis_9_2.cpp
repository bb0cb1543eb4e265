#include <iostream>
#include "status.h"
#include "damelo.h"
int main () {
 Status status;
 int groupCount = 16;
 int memoryUsage = 128;
 Damelo *damelo = new Damelo ("/raw/raw/raw4", groupCount, memoryUsage, status);
 damelo->love (3);
  char fileName[20];
 sprintf (fileName, "somefile.gif");
 char dataIn[100];
 memset (&dataIn, 'a', 100);
  status = damelo->create (fileName, 3, dataIn, 100);
 int groupNumber;
 status = damelo->lookup (fileName, groupNumber);
 char *dataOut;
  int length;
  status = damelo->read (fileName, groupNumber, dataOut, length);
 status = damelo->release (fileName, groupNumber);
 damelo->hate (groupNumber);
 status = damelo->remove (fileName, groupNumber);
 delete damelo;
 return 0;
}
